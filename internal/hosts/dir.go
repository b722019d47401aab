package hosts

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"agentworks-deploy/internal/report"
)

// Dir finds the folder of host files and says by which rule: the flag, the
// environment, ./hosts, or the folder "hosts" beside the folder of the program
// at self. A folder that was asked for and is not there is exit 2.
func Dir(flag string, environ []string, self string) (dir, rule string, err error) {
	env := ""
	for _, kv := range environ {
		if value, ok := strings.CutPrefix(kv, EnvDir+"="); ok {
			env = value
		}
	}
	switch beside := filepath.Join(filepath.Dir(filepath.Dir(self)), "hosts"); {
	case flag != "":
		dir, rule = flag, "--hosts-dir"
	case env != "":
		dir, rule = env, EnvDir
	case isDir("hosts"):
		return "hosts", "./hosts", nil
	case isDir(beside):
		return beside, "beside the program's folder", nil
	default:
		return "", "", report.Coded(report.ExitUsage, "no host files: neither ./hosts nor %s is there; name a folder with --hosts-dir or %s", beside, EnvDir)
	}
	if !isDir(dir) {
		return "", "", report.Coded(report.ExitUsage, "no host files: %s (from %s) is no folder", dir, rule)
	}
	return dir, rule, nil
}

// Names lists the hosts of dir, sorted.
func Names(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, report.Coded(report.ExitUsage, "list host files: %w", err)
	}
	var names []string
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".yaml"); ok && !strings.HasPrefix(name, ".") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// Overlooked lists the files of dir that somebody probably took for host files:
// their names end in .yml.
func Overlooked(dir string) []string {
	entries, _ := os.ReadDir(dir) // what cannot be read is told by Names
	var files []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".yml") && !strings.HasPrefix(e.Name(), ".") {
			files = append(files, e.Name())
		}
	}
	return files
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
