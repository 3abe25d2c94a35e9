package metrics

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// declared is the metrics that package batch declares, by their names in
// CloudWatch.
func declared(t *testing.T) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../../batch/metric.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	ast.Inspect(file, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		name, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
		return true
	})
	if len(names) < 10 {
		t.Fatalf("found only %v", names)
	}
	return names
}

// A metric that somebody counts and nobody writes would be silence where an alarm
// listens.
func TestEveryMetricHasARow(t *testing.T) {
	var names []string
	for _, row := range Table {
		names = append(names, string(row.Name))
		if len(row.By) == 0 {
			t.Errorf("%s: written by nobody", row.Name)
		}
	}
	want := declared(t)
	slices.Sort(names)
	slices.Sort(want)
	if !slices.Equal(names, want) {
		t.Errorf("rows %v\ndeclared %v", names, want)
	}
}

// The operator's table is this one: same names, order, units and functions.
func TestOperationsDocumentsTheTable(t *testing.T) {
	text, err := os.ReadFile("../../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text2, found := strings.Cut(string(text), "\n| metric |")
	if !found {
		t.Fatal("docs/operations.md has no table of metrics")
	}
	lines := strings.Split(text2, "\n")[2:] // below the headings
	for i, row := range Table {
		want := []string{"`" + string(row.Name) + "`", string(row.Unit), strings.Join(row.By, ", ")}
		cells := strings.Split(lines[i], "|")
		if len(cells) != 6 {
			t.Fatalf("row %d of the table: %q, want one for %v", i, lines[i], want)
		}
		for n, cell := range []string{cells[1], cells[2], cells[3]} {
			if strings.TrimSpace(cell) != want[n] {
				t.Errorf("%s: %q, want %q", row.Name, strings.TrimSpace(cell), want[n])
			}
		}
	}
	if strings.HasPrefix(lines[len(Table)], "|") {
		t.Errorf("a row too many: %s", lines[len(Table)])
	}
}
