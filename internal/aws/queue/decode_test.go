package queue

import (
	"errors"
	"strings"
	"testing"

	"holdfast/internal/batch"
)

func TestDecode(t *testing.T) {
	const token = "AQCEAAAAKgAAAAMAAAAA/+=="
	for _, c := range []struct {
		name, body string
		want       batch.Message
		ok         bool
	}{
		{"whole", `{"v":1,"tenant":"acme","batch":"batch_1","part":7,"task_token":"` + token + `"}`,
			batch.Message{V: 1, Tenant: "acme", Batch: "batch_1", Part: 7, TaskToken: token}, true},
		{"part 0, no token, any order", ` {"part":0, "batch":"batch_1","tenant":"acme","v":1} `,
			batch.Message{V: 1, Tenant: "acme", Batch: "batch_1"}, true},
		{"newer", `{"v":2,"tenant":"acme","batch":"batch_1","part":7}`, batch.Message{}, false},
		{"no version", `{"tenant":"acme","batch":"batch_1","part":7}`, batch.Message{}, false},
		{"version in words", `{"v":"1","tenant":"acme","batch":"batch_1","part":7}`, batch.Message{}, false},
		{"a member of a later release", `{"v":1,"tenant":"acme","batch":"batch_1","part":7,"task_token":"` + token + `","lines":{"a":[3]}}`,
			batch.Message{V: 1, Tenant: "acme", Batch: "batch_1", Part: 7, TaskToken: token}, true},
		{"another name twice", `{"v":1,"tenant":"acme","batch":"batch_1","part":7,"lines":3,"lines":4}`, batch.Message{}, false},
		{"another case", `{"v":1,"Tenant":"acme","batch":"batch_1","part":7}`, batch.Message{}, false},
		{"twice", `{"v":1,"tenant":"acme","tenant":"evil","batch":"batch_1","part":7}`, batch.Message{}, false},
		{"no part", `{"v":1,"tenant":"acme","batch":"batch_1"}`, batch.Message{}, false},
		{"null part", `{"v":1,"tenant":"acme","batch":"batch_1","part":null}`, batch.Message{}, false},
		{"negative part", `{"v":1,"tenant":"acme","batch":"batch_1","part":-1}`, batch.Message{}, false},
		{"half a part", `{"v":1,"tenant":"acme","batch":"batch_1","part":1.5}`, batch.Message{}, false},
		{"no tenant", `{"v":1,"tenant":"","batch":"batch_1","part":1}`, batch.Message{}, false},
		{"no batch", `{"v":1,"tenant":"acme","part":1}`, batch.Message{}, false},
		{"two values", `{"v":1,"tenant":"acme","batch":"batch_1","part":7}{}`, batch.Message{}, false},
		{"cut off", `{"v":1,"tenant":"acme","batch":"batch_1","task_token":"` + token, batch.Message{}, false},
		{"no JSON", `hello`, batch.Message{}, false},
		{"no object", `[1]`, batch.Message{}, false},
		{"nothing", ``, batch.Message{}, false},
		{"null", `null`, batch.Message{}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, err := Decode(c.body, "receipt", 3)
			if c.ok {
				if want := (batch.Delivery{Message: c.want, Receipt: "receipt", Receives: 3}); err != nil || d != want {
					t.Errorf("got %+v, %v; want %+v", d, err, want)
				}
				return
			}
			if !errors.Is(err, batch.ErrMessage) {
				t.Fatalf("error %v, want %v", err, batch.ErrMessage)
			}
			if strings.Contains(err.Error(), token) || strings.Contains(err.Error(), "acme") {
				t.Errorf("the error quotes the message: %v", err)
			}
		})
	}
}

func TestDecodeCountsFromOne(t *testing.T) {
	d, err := Decode(`{"v":1,"tenant":"acme","batch":"batch_1","part":7}`, "receipt", 0)
	if err != nil || d.Receives != 1 {
		t.Errorf("receives %d, %v", d.Receives, err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(`{"v":1,"tenant":"acme","batch":"batch_1","part":7,"task_token":"t"}`)
	f.Add(`{"v":2}`)
	f.Fuzz(func(t *testing.T, body string) {
		d, err := Decode(body, "receipt", 1)
		if err != nil && !errors.Is(err, batch.ErrMessage) {
			t.Errorf("error %v", err)
		}
		if err == nil && (d.Tenant == "" || d.Batch == "" || d.Part < 0 || d.V != 1) {
			t.Errorf("taken: %+v", d)
		}
	})
}
