package batch

import (
	"errors"
	"strings"
	"testing"
)

func TestRecordRoundTrip(t *testing.T) {
	for _, r := range []Record{
		{0, true, []byte(`{}`), []byte(`{"a":1}`)},
		{9_999_999, false, []byte(`{"custom_id":"a\tb\n"}`), []byte(`{"x":"é\\"}`)},
		{5, true, []byte(`{"r":1}`), []byte(`{"big":"` + strings.Repeat("x", 1<<20) + `"}`)},
	} {
		b := r.Append([]byte("before"))[len("before"):]
		if strings.Count(string(b), "\n") != 1 || b[len(b)-1] != '\n' {
			t.Fatalf("record %d is not one line", r.Line)
		}
		for _, in := range [][]byte{b, b[:len(b)-1]} {
			got, err := ParseRecord(in)
			if err != nil || got.Line != r.Line || got.OK != r.OK || string(got.Receipt) != string(r.Receipt) || string(got.Result) != string(r.Result) {
				t.Fatalf("got %+v, %v", got, err)
			}
		}
	}
}

func TestParseRecordRefuses(t *testing.T) {
	for _, s := range []string{"", "\n", "1\to\t{}", "x\to\t{}\t{}", "-1\to\t{}\t{}", "1\tq\t{}\t{}", "1\t\t{}\t{}", "1\to\t\t{}", "1\to\t{}\t", "1\to\t{}\t[]", "\to\t{}\t{}", "99999999999999999999\to\t{}\t{}"} {
		if r, err := ParseRecord([]byte(s)); !errors.Is(err, ErrRecord) {
			t.Errorf("%q: %+v, %v", s, r, err)
		}
	}
}

func FuzzParseRecord(f *testing.F) {
	f.Add([]byte("1\to\t{}\t{}\n"))
	f.Add([]byte("12\te\t{\"a\":1}\t{\"b\":\"\\t\"}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := ParseRecord(b)
		if err != nil {
			return
		}
		again, err := ParseRecord(r.Append(nil))
		if err != nil || again.Line != r.Line || string(again.Result) != string(r.Result) || string(again.Receipt) != string(r.Receipt) {
			t.Fatalf("%q: %+v, %v", b, again, err)
		}
	})
}
