package openai

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

// benchLines are lines of about 0.5, 1, 4 and 64 KB as people send them: prose with
// escapes, a turn with other scripts, a tool schema.
func benchLines() map[string][]byte {
	const (
		prose  = `The quick brown fox \"jumps\" over the lazy dog.\nThen it went home, and wrote a long letter about the experience before it fell asleep. `
		mixed  = `Größe, naïve café; 東京は日本の首都です。 😀 `
		schema = `"tools": [{"type": "function", "function": {"name": "find", "parameters": {"type": "object", "properties": {"query": {"type": "string"}, "limit": {"type": "integer", "minimum": 1}}, "required": ["query"]}}}], `
	)
	lines := map[string][]byte{}
	line := func(name string, n int, text, more string) {
		lines[name] = []byte(fmt.Sprintf(`{"custom_id": "request-%d", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "gpt-4o-mini", "messages": [{"role": "system", "content": "You are a helpful assistant."}, {"role": "user", "content": "%s"}], %s"max_tokens": 1000, "temperature": 0.7}}`, n, strings.Repeat(text, n), more))
	}
	line("0.5KB", 2, prose, "")
	line("1KB", 6, prose, "")
	line("1KB-tools", 4, prose, schema)
	line("4KB", 26, prose, "")
	line("4KB-mixed", 55, mixed, "")
	line("64KB", 450, prose, "")
	return lines
}

func BenchmarkParseLine(b *testing.B) {
	for name, line := range benchLines() {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(line)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := ParseLine(line, chat); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkPlanLine is what planning does with a line: reading it, parsing it and
// looking its id up.
func BenchmarkPlanLine(b *testing.B) {
	want := Expect{Endpoint: chat.Endpoint, KeysOnly: true}
	for name, line := range benchLines() {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(line) + 1))
			b.ReportAllocs()
			var ids IDSet
			r := NewReader(&cycle{text: append(line[:len(line):len(line)], '\n')}, Limits{})
			for b.Loop() {
				l, err := r.Next()
				if err != nil {
					b.Fatal(err)
				}
				req, fault := l.Parse(want)
				if fault != nil {
					b.Fatal(fault)
				}
				ids.Add(req.IDKey())
			}
		})
	}
}

func stdEnvelope(line []byte) error {
	var envelope struct {
		CustomID string          `json:"custom_id"`
		Method   string          `json:"method"`
		URL      string          `json:"url"`
		Body     json.RawMessage `json:"body"`
	}
	return json.Unmarshal(line, &envelope)
}

func BenchmarkStdEnvelope(b *testing.B) {
	for name, line := range benchLines() {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(line)))
			b.ReportAllocs()
			for b.Loop() {
				if err := stdEnvelope(line); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkRatio says how many times faster than encoding/json's reading of the
// envelope ParseLine is, strict and all, on one core. The two take turns and the
// fastest turn of each counts, so that a busy machine changes little.
func BenchmarkRatio(b *testing.B) {
	for name, line := range benchLines() {
		b.Run(name, func(b *testing.B) {
			turn := 200_000/len(line) + 1
			fastest := func(best time.Duration, f func() error) time.Duration {
				start := time.Now()
				for range turn {
					if err := f(); err != nil {
						b.Fatal(err)
					}
				}
				return min(best, time.Since(start))
			}
			ours, std := time.Hour, time.Hour
			for b.Loop() {
				ours = fastest(ours, func() error {
					if _, fault := ParseLine(line, chat); fault != nil {
						return fault
					}
					return nil
				})
				std = fastest(std, func() error { return stdEnvelope(line) })
			}
			b.ReportMetric(float64(ours.Nanoseconds())/float64(turn), "ns/line")
			b.ReportMetric(float64(std.Nanoseconds())/float64(turn), "std-ns/line")
			b.ReportMetric(float64(std)/float64(ours), "ratio")
		})
	}
}

func BenchmarkAppendResult(b *testing.B) {
	body := benchLines()["4KB"]
	l := Reply(RequestResultID("batch_1", 1), []byte(`"request-1"`), Response{StatusCode: 200, RequestID: "req_1", Body: body})
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	var dst []byte
	for b.Loop() {
		dst = l.Append(dst[:0])
	}
}

// cycle is an endless stream of one text.
type cycle struct {
	text []byte
	at   int
}

func (c *cycle) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		m := copy(p[n:], c.text[c.at:])
		n += m
		c.at = (c.at + m) % len(c.text)
	}
	return n, nil
}

var _ io.Reader = (*cycle)(nil)
