package main

import (
	"encoding/csv"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestNag reads cdk-nag's own report: no finding is left, and what it says is
// suppressed is exactly what the template's resources carry, one for one. An
// entry of nag.go that no longer suppresses anything has no line in the report.
func TestNag(t *testing.T) {
	for name, stack := range stacks {
		var reported []string
		compliant := 0
		for _, row := range nagReport(t, name) {
			rule, path, verdict, reason, info := row[0], row[1], row[2], row[3], row[5]
			switch verdict {
			case "Compliant":
				compliant++
			case "Suppressed":
				reported = append(reported, rule+" "+reason)
			default:
				t.Errorf("%s: %s %s: %s", verdict, rule, path, info)
			}
		}
		if compliant == 0 {
			t.Fatalf("%s: nothing was checked", name)
		}
		var carried []string
		for id, r := range stack.resources {
			nag, ok := r.Metadata["cdk_nag"].(object)
			if !ok {
				continue
			}
			for _, entry := range list(nag["rules_to_suppress"]) {
				rule := entry.(object)
				reason := rule["reason"].(string)
				if len(reason) < 40 {
					t.Errorf("%s: %v has no reason to speak of: %q", id, rule["id"], reason)
				}
				finding := ""
				if applies := list(rule["applies_to"]); len(applies) == 1 {
					finding = "[" + applies[0].(string) + "] "
				} else if rule["id"] == "AwsSolutions-IAM5" {
					t.Errorf("%s: %v must name the one grant that it is for", id, rule["id"])
				}
				carried = append(carried, rule["id"].(string)+" "+finding+reason)
			}
		}
		slices.Sort(reported)
		slices.Sort(carried)
		same(t, name+": reported as suppressed, and carried by the resources", reported, carried)
	}
}

func nagReport(t *testing.T, stack string) [][]string {
	t.Helper()
	file, err := os.Open(filepath.Join(outdir, "AwsSolutions--"+stack+"-NagReport.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	rows, err := csv.NewReader(file).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	return rows[1:] // below the headings
}
