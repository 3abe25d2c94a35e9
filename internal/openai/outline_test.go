package openai

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

func outlineOf(line []byte) *parser {
	p := &parser{notes: notes{in: line, deepest: DefaultNesting + 2, deep: -1}}
	p.scan()
	return p
}

func TestOutline(t *testing.T) {
	for _, tt := range []struct{ line, outline string }{
		{`{"a": "b\n\u00e9", "c" : [1, 20, 0.25, -0, 1e09]}`, `{"":"","":[1,1,0.1,-0,1e01]}`},
		{`[305, 350, 0305, 00, 1 2, 1, 2, true, nul]`, `[1,1,01,00,1 1,1,1,true,nul]`},
		{`{"a":"b\q"}`, `{"":"`},
		{`{"a":"b\u12g4"}`, `{"":"`},
		{`{"a":"b\`, `{"":"`},
		{"{\"a\":\"b\t\"}", `{"":"`},
		{`"`, `"`},
		{`1"2"3"`, `1""1"`},
	} {
		if got := string(outlineOf([]byte(tt.line)).outline); got != tt.outline {
			t.Errorf("%s: %s, want %s", tt.line, got, tt.outline)
		}
	}
}

// The outline of a line is JSON if and only if the line is, whatever becomes of it,
// and whatever outlines were judged before.
func TestOutlineDecidesAsTheLibraryDoes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	bytesToPut := []byte("\"\\{}[]:,0019.-+eEtnfu \t\n\x00\x1fx/é")
	kept := new(outlines)
	var lines [][]byte
	for _, l := range benchLines() {
		if len(l) < 2_000 {
			lines = append(lines, l)
		}
	}
	slices.SortFunc(lines, func(a, b []byte) int { return strings.Compare(string(a), string(b)) })
	lines = append(lines, []byte(`{"a":[0,-0,10,0.5,0.05,1e5,1E+05,-1.0e-0,100,"\ud83d\ude00\"\\\/\b\f\n\r\t",true,false,null,{},[]],"b":{"c":"d"}}`))
	valid := 0
	const rounds = 100_000
	for range rounds {
		line := slices.Clone(lines[rng.IntN(len(lines))])
		for range 1 + rng.IntN(2) {
			at := rng.IntN(len(line))
			switch rng.IntN(3) {
			case 0:
				line[at] = bytesToPut[rng.IntN(len(bytesToPut))]
			case 1:
				line = slices.Delete(line, at, min(len(line), at+1+rng.IntN(3)))
			default:
				line = slices.Insert(line, at, bytesToPut[rng.IntN(len(bytesToPut))])
			}
		}
		if !utf8.Valid(line) {
			continue
		}
		p := outlineOf(line)
		want := jsontext.Value(line).IsValid(parserOptions...)
		if got := kept.valid(p.outline); got != want {
			t.Fatalf("the outline %q is valid: %v, the line: %v: %q", p.outline, got, want, line)
		}
		if want {
			valid++
		}
	}
	if valid < rounds/10 || valid > rounds*9/10 {
		t.Errorf("%d of %d lines were JSON: too one-sided to say much", valid, rounds)
	}
}
