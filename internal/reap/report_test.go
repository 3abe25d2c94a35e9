package reap_test

import (
	"reflect"
	"slices"
	"testing"

	"holdfast/internal/reap"
)

// Whatever a report counts is added up, and is something done, but for what it
// says of the state of things.
func TestReportsAddUp(t *testing.T) {
	var first, second reap.Report
	a, b := reflect.ValueOf(&first).Elem(), reflect.ValueOf(&second).Elem()
	done := 0
	for n := range a.NumField() {
		if a.Field(n).Kind() != reflect.Int {
			continue
		}
		a.Field(n).SetInt(int64(1 << n))
		b.Field(n).SetInt(int64(1000 << n))
		if !slices.Contains([]string{"Left", "Failed", "Overdue"}, a.Type().Field(n).Name) {
			done += 1 << n
		}
	}
	second.More = true
	if first.Done() != done || second.Done() != 1000*done {
		t.Errorf("%d done, want %d", first.Done(), done)
	}
	sum := first.Plus(second)
	for f, v := range reflect.ValueOf(sum).Fields() {
		of := func(r reap.Report) int64 { return reflect.ValueOf(r).FieldByName(f.Name).Int() }
		switch {
		case f.Name == "More":
			if !v.Bool() {
				t.Error("there is more, and the sum doesn't say so")
			}
		case f.Name == "Overdue" && v.Int() != of(second), f.Name != "Overdue" && v.Int() != of(first)+of(second):
			t.Errorf("%s: %d and %d are %d", f.Name, of(first), of(second), v.Int())
		}
	}
}
