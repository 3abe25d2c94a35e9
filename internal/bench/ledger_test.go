package bench

import (
	"os"
	"reflect"
	"regexp"
	"testing"

	"holdfast/internal/batch"
)

// The ledger has rows for operations that there are.
func TestLedgerKnowsNothingElse(t *testing.T) {
	ports := map[string]reflect.Type{
		"Batches": reflect.TypeFor[batch.Batches](), "Parts": reflect.TypeFor[batch.Parts](), "Claims": reflect.TypeFor[batch.Claims](),
		"Endings": reflect.TypeFor[batch.Endings](), "Events": reflect.TypeFor[batch.Events](), "Files": reflect.TypeFor[batch.Files](),
		"Objects": reflect.TypeFor[batch.Objects](), "Uploads": reflect.TypeFor[batch.Uploads](), "Queue": reflect.TypeFor[batch.Queue](),
		"Workflow": reflect.TypeFor[batch.Workflow](),
	}
	text, err := os.ReadFile("ledger.go")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile(`"([A-Z][a-z]+)\.([A-Za-z]+)"`).FindAllStringSubmatch(string(text), -1)
	if len(rows) < 20 {
		t.Fatalf("found only %v", rows)
	}
	for _, row := range rows {
		if row[0] == `"Objects.Read"` {
			continue // of what Open answers
		}
		port, ok := ports[row[1]]
		if !ok {
			t.Errorf("no port for %s", row[0])
			continue
		}
		if _, ok := port.MethodByName(row[2]); !ok {
			t.Errorf("there is no %s", row[0])
		}
	}
}
