package door_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"holdfast/events"
	"holdfast/internal/bridge"
)

// wide is a message of 1 MiB whose last member, of this name, holds as many of unit as
// there is room for, between begin and end.
func wide(name, begin, end string, unit func(i int) string) bridge.Letter {
	whole, err := json.Marshal(message())
	if err != nil {
		panic(err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `%s,%q:%s%s`, strings.TrimSuffix(string(whole), "}"), name, begin, unit(0))
	for i := 1; b.Len() < 1<<20-200; i++ {
		b.WriteString("," + unit(i))
	}
	return letter(b.String() + end + "}")
}

// A message costs no more than a few times its own bytes, whatever is in it. Ten come
// at once to a process of 512 MB, and one that ends it takes the others with it, and
// comes again.
func TestWhatAMessageCosts(t *testing.T) {
	object := func(int) string { return `{"":0}` }
	pair := func(i int) string { return fmt.Sprintf(`"k%d":0`, i) }
	for name, c := range map[string]struct {
		l       bridge.Letter
		refused bool
	}{
		"objects that nobody reads":  {wide("x", "[", "]", object), false},
		"objects for metadata":       {wide("metadata", `{"k":[`, "]}", object), true},
		"pairs of metadata":          {wide("metadata", "{", "}", pair), true},
		"members that nobody reads":  {wide("x", "{", "}", pair), false},
		"objects in place of a text": {wide("completion_window", "[", "]", object), true},
		"a list for a message":       {letter("[" + strings.Repeat(`{"":0},`, 140_000) + "0]"), true},
	} {
		r := newRig(t)
		d := r.doors(nil)
		_, _ = d.Open(t.Context(), letter(message()), start) // what is done once
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := d.Open(t.Context(), c.l, start)
		runtime.ReadMemStats(&after)
		if mib := (after.TotalAlloc - before.TotalAlloc) >> 20; mib > 24 {
			t.Errorf("%s: %d bytes cost %d MiB", name, len(c.l.Body), mib)
		}
		if errors.Is(err, bridge.ErrRefused) != c.refused || !c.refused && err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What the schema allows has room, also where every character is escaped.
func TestLargestMessage(t *testing.T) {
	const (
		astral  = `\ud83d\udc69` // of the schema's characters one
		control = `\u0001`       // of its bytes one
	)
	var pairs []string
	for i := range 16 {
		pairs = append(pairs, fmt.Sprintf(`"%s%02d":"%s"`, strings.Repeat(astral, 62), i, strings.Repeat(astral, 512)))
	}
	r := newRig(t)
	got := r.open(letter(fmt.Sprintf(`{"v":1,"correlation_id":"%s","tenant":"acme","principal":"ann","endpoint":"/v1/embeddings","input":{"file_id":"file-1"},"metadata":{%s}}`,
		strings.Repeat(control, bridge.MaxCorrelationID), strings.Join(pairs, ","))))
	if len(got.Metadata) != 16 || len(got.CorrelationID) != bridge.MaxCorrelationID {
		t.Errorf("%d pairs, an id of %d bytes", len(got.Metadata), len(got.CorrelationID))
	}
}

// The bound is the one that the schema's readers are told.
func TestDescribedMembersHaveABound(t *testing.T) {
	const most, told = 196_608, "196,608 bytes together"
	if !strings.Contains(string(events.MessageSchema), told) {
		t.Errorf("the schema doesn't say %q", told)
	}
	short := string(letter(message(with("metadata", map[string]any{}))).Body)
	var members map[string]json.RawMessage
	if err := json.Unmarshal([]byte(short), &members); err != nil {
		t.Fatal(err)
	}
	room := most
	for _, raw := range members {
		room -= len(raw)
	}
	body := strings.Replace(short, "{}", "{"+strings.Repeat(" ", room)+"}", 1)
	r := newRig(t)
	r.open(letter(body))
	if _, why := r.refuse(letter(strings.Replace(body, "{ ", "{  ", 1))); !strings.Contains(why.Error(), "have 196609 bytes; the most is 196608") {
		t.Error(why)
	}
}
