package batch_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/openai"
)

// ended is a batch's files, and its input.
type endedFiles struct{ receipts, output, errors, input string }

func (r *rig) files() endedFiles {
	text := func(kind string) string {
		return string(r.m.Objects.Bytes(results, batch.ResultKey(tenant, batchID, kind)))
	}
	return endedFiles{text(batch.ReceiptsFile), text(batch.OutputFile), text(batch.ErrorFile), string(r.m.Objects.Bytes("inputs", "files/t1/file-1"))}
}

func (f endedFiles) check() batch.ReceiptCheck {
	return batch.ReceiptCheck{
		Receipts: strings.NewReader(f.receipts), Output: strings.NewReader(f.output), Errors: strings.NewReader(f.errors), Input: strings.NewReader(f.input),
	}
}

// receiptsAgree checks what a batch that is over left, as a person does.
func (r *rig) receiptsAgree() batch.ReceiptReport {
	r.t.Helper()
	b, _ := r.m.Table.Batch(tenant, batchID)
	c := r.files().check()
	c.Batch, c.Endpoint, c.Counts = batchID, endpoint, &b.Counts
	c.Fault = func(f batch.ReceiptFault) { r.t.Errorf("%s, line %d: %s", f.File, f.Line, f.What) }
	report, err := c.Run(r.t.Context())
	if err != nil || !report.OK() {
		r.t.Errorf("%+v, %v", report, err)
	}
	return report
}

// mixedBatch is nine lines with every kind of end: six that were replayed, and three
// that were cancelled before.
func mixedBatch(t *testing.T) *rig {
	r := newRig(t, 9, 6, func(_ context.Context, c batch.Call) (batch.Reply, error) {
		switch c.Line {
		case 0:
			return reply(200, `{"usage":{"prompt_tokens":3,"completion_tokens":4}}`), nil
		case 1:
			return reply(200, "{ \"white\" : \"space\",\n\"usage\":{\"total_tokens\":9} }"), nil
		case 2:
			return reply(200, "<html>"), nil
		case 3:
			return reply(400, `{"error":{}}`), nil
		case 4:
			return batch.Reply{}, batch.ErrModelNotFound
		}
		return batch.Reply{}, batch.ErrTimeout
	})
	r.opts.Tries = 1
	first, _ := r.receive()
	r.receive() // is never run: hidden, until the batch is over
	expect(t, r.runDelivery(t.Context(), nil, first, life), true, "done")
	if err := r.cancel(); err != nil {
		t.Fatal(err)
	}
	r.finish()
	return r
}

func TestReceiptsAgreeWithTheResults(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := mixedBatch(t)
		got := r.receiptsAgree()
		want := batch.ReceiptReport{Batch: batchID, Tenant: tenant, OnBehalfOf: "alice", Lines: 9, Receipts: 6, Unsent: 3, Output: 2, Errors: 7, Requests: true}
		if got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		// Of a batch nothing of which was sent there is no receipt, and every line is
		// accounted for all the same.
		r = newRig(t, 3, 3, nil)
		if err := r.cancel(); err != nil {
			t.Fatal(err)
		}
		r.finish()
		if got := r.receiptsAgree(); got.Unsent != 3 || got.Receipts != 0 {
			t.Errorf("%+v", got)
		}
	})
}

// What tokens a reply names is read of it as far as it goes, also where that is no JSON
// in the end and is kept as a string.
func TestReceiptsOfRepliesThatBreakOff(t *testing.T) {
	bubble(t, func(t *testing.T) {
		bodies := []string{
			`{"usage":{"total_tokens":7},"choices":[`, `{"usage":{"total_tokens":7}} and more`, "{\"usage\":{\"total_tokens\":7},\"x\":\"\xff", "{\"a\":\"\xff\",\"usage\":{\"total_tokens\":7}",
			`"{\"usage\":{\"total_tokens\":7}}"`, ` "{\"usage\":{\"total_tokens\":7}}"`, `[{"usage":{"total_tokens":7}}]`, "", `{"usage":`,
		}
		r := newRig(t, len(bodies), len(bodies), func(_ context.Context, c batch.Call) (batch.Reply, error) { return reply(200, bodies[c.Line]), nil })
		r.opts.Tries = 1
		expect(t, r.run(nil, life), true, "done")
		r.finish()
		r.receiptsAgree()
		if n := strings.Count(r.files().receipts, `"total_tokens":7`); n != 4 {
			t.Errorf("%d receipts with tokens", n)
		}
	})
}

// A custom_id may be what is no character: it is data.
func TestReceiptsOfOddIDs(t *testing.T) {
	var f endedFiles
	bubble(t, func(t *testing.T) { f = mixedBatch(t).files() })
	for _, id := range []string{`\ud800`, `\u0000\r\nX-Evil: 1`, `../..`, "\u202e"} {
		odd := f
		for _, text := range []*string{&odd.receipts, &odd.output, &odd.errors, &odd.input} {
			*text = strings.ReplaceAll(*text, "<id-", id+"-")
		}
		c := odd.check()
		c.Fault = func(x batch.ReceiptFault) { t.Errorf("%s: %+v", id, x) }
		if report, err := c.Run(t.Context()); err != nil || !report.OK() || report.Receipts != 6 {
			t.Errorf("%s: %+v, %v", id, report, err)
		}
	}
}

// Replies that are kept back, with whatever status, and a batch that is nothing else and so
// has no output file, agree as well.
func TestReceiptsOfWithheldReplies(t *testing.T) {
	bubble(t, func(t *testing.T) {
		statuses := []int{200, 201, 302, 304, 403, 400} // of which none is the model's trouble
		r := newRig(t, len(statuses), len(statuses), func(_ context.Context, c batch.Call) (batch.Reply, error) {
			status := statuses[c.Line]
			return batch.Reply{Status: status, Withheld: batch.Withhold(status, openai.CodeUpstreamDenied, []byte("sk-quoted"))}, nil
		})
		r.opts.Tries = 1
		expect(t, r.run(nil, life), true, "done")
		r.finish()
		if got := r.receiptsAgree(); got.Receipts != int64(len(statuses)) || got.Errors != got.Receipts {
			t.Errorf("%+v", got)
		}
		if f := r.files(); strings.Contains(f.receipts+f.output+f.errors, "sk-quoted") {
			t.Errorf("%+v", f)
		}
	})
}

// Whatever is altered, left out, added or moved in any of the files is found, and
// where it is is said.
func TestReceiptFaultsAreFound(t *testing.T) {
	var f endedFiles
	bubble(t, func(t *testing.T) { f = mixedBatch(t).files() })
	lines := func(s string) []string { return slices.Collect(strings.Lines(s)) }
	without := func(s string, n int) string {
		all := lines(s)
		return strings.Join(append(all[:n:n], all[n+1:]...), "")
	}
	twice := func(s string, n int) string {
		all := lines(s)
		return strings.Join(append(all[:n+1:n+1], all[n:]...), "")
	}
	swap := func(s string, n int) string {
		all := lines(s)
		all[n], all[n+1] = all[n+1], all[n]
		return strings.Join(all, "")
	}
	edit := func(s string, n int, old, with string) string {
		all := lines(s)
		if !strings.Contains(all[n], old) {
			t.Fatalf("no %s in %s", old, all[n])
		}
		all[n] = strings.Replace(all[n], old, with, 1)
		return strings.Join(all, "")
	}
	for _, c := range []struct {
		name string
		edit func(*endedFiles)
		file string
		line int64
		what string
	}{
		{"a reply", func(f *endedFiles) { f.output = edit(f.output, 1, `"space"`, `"Space"`) }, batch.OutputFile, 2, "SHA-256 of the reply"},
		{"a reply that is a string", func(f *endedFiles) { f.errors = edit(f.errors, 0, `<html>`, `<HTML>`) }, batch.ErrorFile, 1, "SHA-256 of the reply"},
		{"a refusal", func(f *endedFiles) { f.errors = edit(f.errors, 1, `{"error":{}}`, `{"error":[]}`) }, batch.ErrorFile, 2, "SHA-256 of the reply"},
		{"the hash of a reply", func(f *endedFiles) { f.receipts = edit(f.receipts, 0, `"reply_sha256":"`, `"reply_sha256":"0`) }, batch.OutputFile, 1, "SHA-256 of the reply"},
		{"the hash of what is kept", func(f *endedFiles) { f.receipts = edit(f.receipts, 1, `"kept_sha256"`, `"x"`) }, batch.OutputFile, 2, "SHA-256 of the reply"},
		{"a reply that was added", func(f *endedFiles) {
			f.errors = edit(f.errors, 2, `"response":null`, `"response":{"status_code":500,"body":{}}`)
		}, batch.ErrorFile, 3, "status is 500"},
		{"a reply that is gone", func(f *endedFiles) {
			f.errors = edit(f.errors, 1, `"response":{"status_code":400`, `"x":{"status_code":400`)
		}, batch.ErrorFile, 2, "it has no reply"},
		{"tokens", func(f *endedFiles) { f.receipts = edit(f.receipts, 0, `"total_tokens":7`, `"total_tokens":8`) }, batch.OutputFile, 1, "7 tokens, the receipt says 8"},
		{"tokens that nobody used", func(f *endedFiles) { f.receipts = edit(f.receipts, 1, `"usage"`, `"x"`) }, batch.OutputFile, 2, "9 tokens, the receipt says 0"},
		{"tokens of no reply", func(f *endedFiles) {
			f.receipts = edit(f.receipts, 5, `"status":0`, `"status":0,"usage":{"total_tokens":7}`)
		}, batch.ErrorFile, 4, "no tokens, the receipt says 7"},
		{"tokens of no JSON", func(f *endedFiles) {
			f.receipts = edit(f.receipts, 2, `"status":200`, `"status":200,"usage":{"total_tokens":7}`)
		}, batch.ErrorFile, 1, "no tokens, the receipt says 7"},
		{"an error that is gone", func(f *endedFiles) { f.errors = edit(f.errors, 3, `"error":{`, `"x":{`) }, batch.ErrorFile, 4, "neither a response nor an error"},
		{"a status", func(f *endedFiles) { f.receipts = edit(f.receipts, 3, `"status":400`, `"status":404`) }, batch.ErrorFile, 2, "status is 400, the receipt says 404"},
		{"a result's id", func(f *endedFiles) { f.output = edit(f.output, 0, `batch_req_`, `batch_reQ_`) }, batch.OutputFile, 1, "id is"},
		{"a result's custom_id", func(f *endedFiles) { f.output = edit(f.output, 0, `<id-0>`, `<id-x>`) }, batch.OutputFile, 1, "custom_id is"},
		{"a receipt's custom_id", func(f *endedFiles) { f.receipts = edit(f.receipts, 0, `<id-0>`, `<id-x>`) }, batch.OutputFile, 1, "custom_id is"},
		{"the wrong file", func(f *endedFiles) { f.output, f.errors = "", "" }, batch.ReceiptsFile, 1, "no result is"},
		{"an error that is none", func(f *endedFiles) { f.errors = edit(f.errors, 1, `"status_code":400`, `"status_code":200`) }, batch.ErrorFile, 2, "other file"},
		{"unsent, by its error", func(f *endedFiles) { f.errors = edit(f.errors, 3, "request_timeout", "batch_expired") }, batch.ErrorFile, 4, "but there is a receipt"},
		{"sent, by its error", func(f *endedFiles) { f.errors = edit(f.errors, 5, "batch_cancelled", "request_timeout") }, batch.ErrorFile, 6, "line 7 has no receipt"},
		{"an output line is gone", func(f *endedFiles) { f.output = without(f.output, 0) }, batch.ReceiptsFile, 1, "no result is"},
		{"an error line is gone", func(f *endedFiles) { f.errors = without(f.errors, 2) }, batch.ReceiptsFile, 5, "no result is"},
		{"an unsent line is gone", func(f *endedFiles) { f.errors = without(f.errors, 5) }, batch.InputFile, 8, "custom_id is"},
		{"the last line is gone", func(f *endedFiles) { f.errors = without(f.errors, 6) }, batch.InputFile, 9, "it has no result"},
		{"a receipt is gone", func(f *endedFiles) { f.receipts = without(f.receipts, 1) }, batch.OutputFile, 2, "line 1 has no receipt"},
		{"the last receipt is gone", func(f *endedFiles) { f.receipts = without(f.receipts, 5) }, batch.ErrorFile, 4, "line 5 has no receipt"},
		{"all receipts are gone", func(f *endedFiles) { f.receipts = "" }, batch.OutputFile, 1, "line 0 has no receipt"},
		{"an output line twice", func(f *endedFiles) { f.output = twice(f.output, 0) }, batch.ReceiptsFile, 2, "no result is"},
		{"the last output line twice", func(f *endedFiles) { f.output = twice(f.output, 1) }, batch.OutputFile, 3, "no receipt"},
		{"an unsent line twice", func(f *endedFiles) { f.errors = twice(f.errors, 4) }, batch.InputFile, 8, "custom_id is"},
		{"a receipt twice", func(f *endedFiles) { f.receipts = twice(f.receipts, 2) }, batch.ReceiptsFile, 4, "accounted for already"},
		{"receipts out of order", func(f *endedFiles) { f.receipts = swap(f.receipts, 2) }, batch.ErrorFile, 1, "line 2 has no receipt"},
		{"results out of order", func(f *endedFiles) { f.output = swap(f.output, 0) }, batch.ReceiptsFile, 1, "no result is"},
		{"unsent lines out of order", func(f *endedFiles) { f.errors = swap(f.errors, 4) }, batch.InputFile, 7, "custom_id is"},
		{"another tenant", func(f *endedFiles) { f.receipts = edit(f.receipts, 3, `"tenant":"`, `"tenant":"x`) }, batch.ReceiptsFile, 4, "tenant is"},
		{"another batch", func(f *endedFiles) { f.receipts = edit(f.receipts, 0, `"batch_id":"`, `"batch_id":"x`) }, batch.ReceiptsFile, 1, "batch_id is"},
		{"another submitter", func(f *endedFiles) {
			f.receipts = edit(f.receipts, 5, `"on_behalf_of":"alice"`, `"on_behalf_of":"bob"`)
		}, batch.ReceiptsFile, 6, `on_behalf_of is "bob", not "alice"`},
		{"nobody", func(f *endedFiles) {
			f.receipts = strings.ReplaceAll(f.receipts, `"on_behalf_of":"alice"`, `"on_behalf_of":""`)
		}, batch.ReceiptsFile, 1, "on_behalf_of is missing"},
		{"no worker", func(f *endedFiles) { f.receipts = edit(f.receipts, 0, `"worker"`, `"x"`) }, batch.ReceiptsFile, 1, "is missing"},
		{"a request", func(f *endedFiles) { f.input = edit(f.input, 3, `<&>`, `<+>`) }, batch.InputFile, 4, "SHA-256 of the body"},
		{"the hash of a request", func(f *endedFiles) { f.receipts = edit(f.receipts, 4, `"request_sha256":"`, `"request_sha256":"00`) }, batch.InputFile, 5, "SHA-256 of the body"},
		{"an input that goes on", func(f *endedFiles) { f.input += strings.ReplaceAll(lines(f.input)[0], "<id-0>", "<id-9>") }, batch.InputFile, 10, "it has no result"},
		{"an input that ends early", func(f *endedFiles) { f.input = without(f.input, 8) }, batch.ErrorFile, 7, "the input ends before it"},
		{"an input with a blank line", func(f *endedFiles) { f.input = "\n" + f.input }, batch.OutputFile, 1, "not that of the input's line 2"},
		{"another input", func(f *endedFiles) { f.input = "{}\n" }, batch.InputFile, 1, "invalid_custom_id"},
		{"a file that is cut", func(f *endedFiles) { f.output = f.output[:len(f.output)-3] }, batch.OutputFile, 2, "ends within a line"},
		{"receipts that are cut", func(f *endedFiles) { f.receipts = f.receipts[:len(f.receipts)-3] }, batch.ReceiptsFile, 6, "ends within a line"},
		{"another submitter, whom only some see", func(f *endedFiles) {
			f.receipts = edit(f.receipts, 3, `"on_behalf_of":"alice"`, `"on_behalf_of":"bob","On_Behalf_Of":"alice"`)
		}, batch.ReceiptsFile, 4, "it is no receipt"},
		{"another submitter, twice", func(f *endedFiles) {
			f.receipts = edit(f.receipts, 3, `"on_behalf_of":"alice"`, `"on_behalf_of":"bob","on_behalf\u005fof":"alice"`)
		}, batch.ReceiptsFile, 4, "it is no receipt"},
		{"another reply, spelled otherwise", func(f *endedFiles) {
			f.output = edit(f.output, 0, `,"error":null}`, `,"error":null,"respons\u0065":{"status_code":200,"body":{}}}`)
		}, batch.OutputFile, 1, "not a result line"},
		{"results for receipts", func(f *endedFiles) { f.receipts = f.output }, batch.ReceiptsFile, 1, "it is no receipt"},
		{"no receipt", func(f *endedFiles) { f.receipts = "{}\n" }, batch.ReceiptsFile, 1, "it is no receipt"},
		{"no result", func(f *endedFiles) { f.errors = "{}\n" }, batch.ErrorFile, 1, "not a result line"},
	} {
		t.Run(c.name, func(t *testing.T) {
			altered := f
			c.edit(&altered)
			check, found := altered.check(), []batch.ReceiptFault(nil)
			check.Batch = batchID
			check.Fault = func(x batch.ReceiptFault) { found = append(found, x) }
			report, err := check.Run(t.Context())
			if err != nil || report.OK() || int(report.Faults) != len(found) {
				t.Fatalf("%+v, %v, %+v", report, err, found)
			}
			for _, x := range found {
				if x.File == c.file && x.Line == c.line && strings.Contains(x.What, c.what) {
					return
				}
			}
			t.Errorf("%+v, want %s line %d: %s", found, c.file, c.line, c.what)
		})
	}
}

// Without an input the rest is checked, and it is said that request hashes weren't.
// Files cut off to nothing agree with each other, and prove nothing.
func TestReceiptsOfNothing(t *testing.T) {
	for _, input := range []io.Reader{nil, strings.NewReader("")} {
		r, err := batch.ReceiptCheck{Receipts: strings.NewReader(""), Output: strings.NewReader(""), Errors: strings.NewReader(""), Input: input}.Run(t.Context())
		if err != nil || r.OK() || r.Faults != 1 {
			t.Errorf("%+v, %v", r, err)
		}
	}
}

func TestReceiptsWithoutInput(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := mixedBatch(t).files().check()
		c.Input = nil
		if report, err := c.Run(t.Context()); err != nil || !report.OK() || report.Requests || report.Batch != batchID {
			t.Errorf("%+v, %v", report, err)
		}
		c = mixedBatch(t).files().check()
		c.Counts = &batch.Counts{Total: 9, Completed: 3, Failed: 6}
		if report, err := c.Run(t.Context()); err != nil || report.Faults != 1 || report.Stopped {
			t.Errorf("%+v, %v", report, err)
		}
	})
}

// A reader's trouble is an error and no fault.
func TestReceiptCheckReadsFail(t *testing.T) {
	var f endedFiles
	bubble(t, func(t *testing.T) { f = mixedBatch(t).files() })
	trouble := errors.New("connection lost")
	for n := range 4 {
		c := f.check()
		torn := []*io.Reader{&c.Receipts, &c.Output, &c.Errors, &c.Input}[n]
		*torn = io.MultiReader(io.LimitReader(*torn, 700), iotest.ErrReader(trouble))
		if report, err := c.Run(t.Context()); !errors.Is(err, trouble) || report.Faults != 0 {
			t.Errorf("file %d: %+v, %v", n, report, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.check().Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// A long line is one line; one that is longer than any result is a fault, found
// without holding it.
func TestReceiptCheckIsBounded(t *testing.T) {
	endless := io.MultiReader(strings.NewReader(`{"id":"`), forever{})
	c := batch.ReceiptCheck{Receipts: strings.NewReader(""), Output: endless}
	began := time.Now()
	report, err := c.Run(t.Context())
	if err != nil || !report.Stopped || report.Faults != 1 {
		t.Errorf("%+v, %v after %s", report, err, time.Since(began))
	}
}

type forever struct{}

func (forever) Read(p []byte) (int, error) { return copy(p, bytes.Repeat([]byte("x"), len(p))), nil }
