package accounts

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
)

// Count says how many running processes each user id has, by proc(5) mounted at proc.
func Count(proc string) (map[uint32]int, error) {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil, fmt.Errorf("list the processes: %w", err)
	}
	count := map[uint32]int{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		p, err := ReadProcess(proc, pid)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if !p.Zombie {
			count[p.UID]++
		}
	}
	return count, nil
}
