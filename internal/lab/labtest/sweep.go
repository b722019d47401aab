package labtest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"agentworks-deploy/internal/lab"
)

// prefix begins the name of every test lab; the pid and start time of the test
// process follow, so that a lab of a dead one is known.
const prefix = "test-"

func nextName() (string, error) {
	owner, err := owner(os.Getpid())
	return fmt.Sprintf("%s%s-%d", prefix, owner, process.labs.Add(1)), err
}

// owner names a living process.
func owner(pid int) (string, error) {
	start, err := lab.ProcessStart(pid)
	return fmt.Sprintf("%d-%s", pid, strconv.FormatUint(start, 36)), err
}

// orphaned says whether name belongs to a test process that is gone.
func orphaned(name string) bool {
	rest, ok := strings.CutPrefix(name, prefix)
	if !ok {
		return false
	}
	pid, err := strconv.Atoi(strings.SplitN(rest, "-", 2)[0])
	if err != nil {
		return false
	}
	living, err := owner(pid)
	return err != nil || !strings.HasPrefix(rest, living+"-")
}

// sweep removes what dead test processes left behind. A failure is told and is
// no reason not to test.
func sweep() {
	labs, err := lab.DefaultStore().List()
	if err != nil {
		fmt.Fprintln(os.Stderr, "labtest:", err)
	}
	for _, l := range labs {
		if !orphaned(l.Name) {
			continue
		}
		if _, err := l.Reset(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, "labtest:", err)
		}
	}
	folders, _ := filepath.Glob(filepath.Join(programsFolder(), prefix+"*"))
	for _, folder := range folders {
		if orphaned(filepath.Base(folder)) {
			_ = os.RemoveAll(folder)
		}
	}
}
