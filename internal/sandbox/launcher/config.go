package launcher

import (
	"encoding/json"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/sandbox/policy"
)

// handoverPath is the config of a policy that came on descriptor 3. It is read
// from the descriptor itself: opening the name would need a readable /proc, and
// a pipe's name would open another end.
const handoverPath = "/proc/self/fd/3"

// maxHandover leaves room for the links beside a policy of full size.
const maxHandover = policy.MaxSize + 1<<20

// config is what the launcher was told.
type config struct {
	policy policy.Policy
	text   []byte   // the policy as it came
	links  []linkID // links that the launcher outside the namespace found to be trusted
}

// handover is what the launcher outside a new user namespace gives to the one
// inside, who cannot see whose a file is.
type handover struct {
	Policy json.RawMessage `json:"policy"`
	Links  []linkID        `json:"links"`
}

func readConfig(cmd command) (config, error) {
	var conf config
	text, err := readConfigText(cmd.configPath)
	if err != nil {
		return conf, fmt.Errorf("config %s: %w", quote(cmd.configPath), err)
	}
	if cmd.namespaced {
		var h handover
		if err := json.Unmarshal(text, &h); err != nil {
			return conf, fmt.Errorf("handover: %w", err)
		}
		text, conf.links = h.Policy, h.Links
	}
	conf.text = text
	conf.policy, err = policy.Parse(text)
	return conf, err
}

func readConfigText(path string) ([]byte, error) {
	if path == handoverPath {
		return readAll(3)
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	return readAll(fd)
}

// readAll reads a descriptor from its beginning where it has one: whoever
// wrote a memfd leaves the offset at its end.
func readAll(fd int) ([]byte, error) {
	if _, err := unix.Seek(fd, 0, 0); err != nil && !errors.Is(err, unix.ESPIPE) {
		return nil, err
	}
	var text []byte
	chunk := make([]byte, 32<<10)
	for {
		n, err := unix.Read(fd, chunk)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return nil, err
		case n == 0:
			return text, nil
		}
		if text = append(text, chunk[:n]...); len(text) > maxHandover {
			return nil, errors.New("too large")
		}
	}
}
