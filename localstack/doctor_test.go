package localstack

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A machine is a PATH of its own: links to the real programs, and stand-ins.
func doctor(t *testing.T, links []string, standIns map[string]string) (lines []string, status int) {
	t.Helper()
	path := t.TempDir()
	for _, name := range links {
		target, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, filepath.Join(path, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, script := range standIns {
		if err := os.WriteFile(filepath.Join(path, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	output, status := command(t, "env", "-i", "PATH="+path, "HOME="+t.TempDir(), "/bin/sh", "doctor.sh")
	return strings.Split(strings.TrimSpace(output), "\n"), status
}

func TestDoctorNamesWhatIsMissing(t *testing.T) {
	base := []string{"awk", "sed", "bash", "make", "openssl"}
	whole := map[string]string{
		"go":      "echo go1.26.0",
		"node":    "echo v20.1.0",
		"npm":     "exit 0",
		"python3": `case "$2" in *version_info*) echo 3.10;; *python_version*) echo 3.10.1;; esac`,
	}
	if lines, status := doctor(t, base, whole); status != 0 || len(lines) != 1 {
		t.Fatalf("a whole machine: exit %d, %q", status, lines)
	}
	for _, c := range []struct {
		name, want string
		standIns   map[string]string // "" takes the program away
	}{
		{"no node", "Node 20", map[string]string{"node": ""}},
		{"old node", "found 18.19.0", map[string]string{"node": "echo v18.19.0"}},
		{"no npm", "npm", map[string]string{"npm": ""}},
		{"no go", "Go 1.26", map[string]string{"go": ""}},
		{"old go", "found 1.25.3", map[string]string{"go": "echo go1.25.3"}},
		{"no python", "Python 3.10", map[string]string{"python3": ""}},
		{"old python", "found 3.9", map[string]string{"python3": "echo 3.9"}},
		{"no venv", "python3-venv", map[string]string{"python3": `case "$2" in *version_info*) echo 3.12;; *) exit 1;; esac`}},
	} {
		machine := map[string]string{}
		for name, script := range whole {
			if replaced, ok := c.standIns[name]; !ok {
				machine[name] = script
			} else if replaced != "" {
				machine[name] = replaced
			}
		}
		lines, status := doctor(t, base, machine)
		if status != 1 || len(lines) != 1 || !strings.Contains(lines[0], c.want) {
			t.Errorf("%s: exit %d, %q; want 1 and one line with %q", c.name, status, lines, c.want)
		}
	}
	for i, name := range base[2:] {
		rest := append(append([]string{}, base[:2+i]...), base[3+i:]...)
		lines, status := doctor(t, rest, whole)
		if status != 1 || len(lines) != 1 || !strings.Contains(lines[0], name) {
			t.Errorf("no %s: exit %d, %q; want 1 and one line with its name", name, status, lines)
		}
	}
}
