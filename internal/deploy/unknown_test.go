package deploy

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestUnknown(t *testing.T) {
	faults := Unknown([]string{
		"HOME=/root", "HOLDFAST_LEASE=1s", "HOLDFAST_UPSTREAMS=[]", "HOLDFAST_PORT=4666", "HOLDFAST_LOCAL=.local/x", "HOLDFAST_URL=https://a", // known
		"HOLDFAST_EMPTY=", "MY_HOLDFAST_LEASE=1s", "HOLDFASTLEASE=1s", // nothing, and none of ours
		"HOLDFAST_UPSTREM_URL=https://a", "HOLDFAST_LEESE=1s", "HOLDFAST_GIT_COMMIT=abc", "HOLDFAST_lease=1s", "HOLDFAST_=1",
	})
	var got []string
	for _, fault := range faults {
		u := fault.(*UnknownVariable)
		got = append(got, u.Name+" "+u.Nearest)
		if !strings.HasPrefix(u.Error(), u.Name+": ") || !strings.Contains(u.Error(), u.Nearest) || strings.Contains(u.Error(), "\n") {
			t.Errorf("%q", u.Error())
		}
	}
	if want := []string{"HOLDFAST_ ", "HOLDFAST_GIT_COMMIT ", "HOLDFAST_LEESE HOLDFAST_LEASE", "HOLDFAST_UPSTREM_URL HOLDFAST_UPSTREAM_URL", "HOLDFAST_lease HOLDFAST_LEASE"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"lease", "leese", 1}, {"lease", "leas", 1}, {"lease", "release", 2}, {"kitten", "sitting", 3}} {
		if got := distance(c.a, c.b); got != c.want {
			t.Errorf("%s to %s: %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

// misspelt is the one that tests elsewhere set.
const misspelt = "HOLDFAST_LEESE"

// A variable that something here reads and that isn't known would be refused where
// somebody sets it.
func TestEveryVariableIsKnown(t *testing.T) {
	root := filepath.Join("..", "..")
	name := regexp.MustCompile(`\bHOLDFAST_[A-Z][A-Z0-9_]*`)
	read, all := 0, known()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == ".local" || d.Name() == "node_modules"):
			return filepath.SkipDir
		case d.IsDir() || !slices.Contains([]string{".go", ".sh", ".py", ".cjs", ".md", ""}, filepath.Ext(path)):
			return nil
		case strings.HasPrefix(d.Name(), "unknown"): // and its test, which have wrong ones
			return nil
		}
		text, err := os.ReadFile(path)
		for _, variable := range name.FindAllString(string(text), -1) {
			if read++; !strings.HasSuffix(variable, "_") && variable != misspelt && !slices.Contains(all, variable) {
				t.Errorf("%s: %s", path, variable)
			}
		}
		return err
	})
	if err != nil || read < 500 {
		t.Errorf("%d variables read: %v", read, err)
	}
}
