package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/openai"
)

// ModelPorts are what the suite of batch.Model needs: a model in front of a
// server that the suite tells what to answer.
type ModelPorts struct {
	// New gives a model whose server answers each call with what answer says of
	// its body. A call may take a quarter of a second, a reply 1,000 bytes.
	New func(t T, answer func(body []byte) ModelAnswer) batch.Model
}

// What New's models are set to.
const (
	ModelTimeout    = 250 * time.Millisecond
	ModelReplyBytes = 1000
)

// ModelAnswer is how the server behind a model answers one call.
type ModelAnswer struct {
	batch.Reply        // RetryAfter is of whole seconds
	Stall       bool   // the status, half of the body, and then nothing until the caller gives up
	Break       bool   // the status, half of the body, and then the connection breaks
	Wait        func() // unless nil: called before anything is answered
}

// RunModel runs the suite of batch.Model.
func RunModel(t *testing.T, open func(T) ModelPorts) {
	t.Helper()
	run(t, ModelCases(), open)
}

// ModelCases is the suite of batch.Model.
func ModelCases() []Case[ModelPorts] {
	return []Case[ModelPorts]{
		{"a reply of any status is no error", modelStatuses},
		{"nobody sees what may quote the token, nor where a redirect leads", modelWithholds},
		{"what may not go is not sent", modelReady},
		{"bodies arrive byte for byte, both ways", modelBodies},
		{"one call is one attempt", modelOnce},
		{"a reply that stalls", modelStalls},
		{"a reply that breaks off", modelBreaks},
		{"a reply that is too large", modelLarge},
		{"many calls at once", modelMany},
		{"a context that ends", modelEnds},
		{"a context that is over", modelInterrupted},
	}
}

func modelCall(body []byte) batch.Call {
	return batch.Call{
		Tenant: tenant(), Batch: "batch_" + unique(), Submitter: "somebody", Line: 9_999_999, Endpoint: "/v1/chat/completions", Body: body, Try: 2,
	}
}

func modelStatuses(t T, p ModelPorts) {
	for _, want := range []batch.Reply{
		{Status: 200, RequestID: "req-1", Body: []byte(`{"a":1}`)},
		{Status: 201, Body: []byte{}},
		{Status: 400, Body: []byte(`{"error":{}}`)},
		{Status: 429, RequestID: "req_1", RetryAfter: 7 * time.Second, Body: []byte("slow down")},
		{Status: 500, Body: []byte("<html>")},
		{Status: 503, RetryAfter: time.Second, Body: []byte("busy")},
	} {
		m := p.New(t, func([]byte) ModelAnswer { return ModelAnswer{Reply: want} })
		got, err := m.Call(t.Context(), modelCall([]byte("{}")))
		succeeds(t, fmt.Sprintf("status %d", want.Status), err)
		same(t, fmt.Sprintf("status %d", want.Status), got, want)
	}
}

func modelWithholds(t T, p ModelPorts) {
	for status, code := range map[int]string{
		401: openai.CodeUpstreamDenied, 403: openai.CodeUpstreamDenied, 407: openai.CodeUpstreamDenied,
		301: openai.CodeUpstreamRedirected, 302: openai.CodeUpstreamRedirected, 308: openai.CodeUpstreamRedirected, 399: openai.CodeUpstreamRedirected,
	} {
		said := batch.Reply{Status: status, RequestID: "req-1", RetryAfter: time.Second, Body: []byte("no such key: sk-1")}
		m := p.New(t, func([]byte) ModelAnswer { return ModelAnswer{Reply: said} })
		got, err := m.Call(t.Context(), modelCall([]byte("{}")))
		succeeds(t, fmt.Sprintf("status %d", status), err)
		want := said
		want.Body, want.Withheld = nil, batch.Withhold(status, code, said.Body)
		same(t, fmt.Sprintf("status %d", status), got, want)
	}
}

func modelReady(t T, p ModelPorts) {
	sent := 0
	m := p.New(t, func([]byte) ModelAnswer {
		sent++
		return ModelAnswer{Reply: batch.Reply{Status: 200, Body: []byte("{}")}}
	})
	late := errors.New("too late")
	for i, says := range []error{nil, late, nil, late} {
		c, asked := modelCall([]byte("{}")), 0
		c.Ready = func(context.Context) error {
			asked++
			return says
		}
		refuses(t, "call", fault(m.Call(t.Context(), c)), says)
		if want := i/2 + 1; sent != want || asked != 1 {
			t.Errorf("call %d: %d sent, want %d; asked %d times", i, sent, want, asked)
		}
	}
}

func modelBodies(t T, p ModelPorts) {
	m := p.New(t, func(body []byte) ModelAnswer {
		return ModelAnswer{Reply: batch.Reply{Status: 200, Body: body}}
	})
	for _, body := range [][]byte{[]byte("{}"), []byte(awkward), pattern(ModelReplyBytes), []byte("{ \"n\": 1.0e+10, \"n\":12345678901234567890 }\r\n")} {
		got, err := m.Call(t.Context(), modelCall(body))
		succeeds(t, "call", err)
		if !bytes.Equal(got.Body, body) {
			t.Errorf("%q came back as %q", body, got.Body)
		}
	}
}

func modelOnce(t T, p ModelPorts) {
	var mu sync.Mutex
	calls := 0
	answers := []ModelAnswer{{Reply: batch.Reply{Status: 500}}, {Reply: batch.Reply{Status: 429}}, {Reply: batch.Reply{Status: 200, Body: []byte("{}")}, Break: true}}
	m := p.New(t, func([]byte) ModelAnswer {
		mu.Lock()
		defer mu.Unlock()
		calls++
		return answers[(calls-1)%len(answers)]
	})
	for i := range answers {
		m.Call(t.Context(), modelCall([]byte("{}")))
		mu.Lock()
		if calls != i+1 {
			t.Errorf("%d calls reached the server as %d", i+1, calls)
		}
		mu.Unlock()
	}
}

func modelStalls(t T, p ModelPorts) {
	m := p.New(t, func([]byte) ModelAnswer {
		return ModelAnswer{Reply: batch.Reply{Status: 200, Body: []byte("{}")}, Stall: true}
	})
	refuses(t, "call", fault(m.Call(t.Context(), modelCall([]byte("{}")))), batch.ErrTimeout)
}

func modelBreaks(t T, p ModelPorts) {
	m := p.New(t, func([]byte) ModelAnswer {
		return ModelAnswer{Reply: batch.Reply{Status: 200, Body: []byte("{}")}, Break: true}
	})
	refuses(t, "call", fault(m.Call(t.Context(), modelCall([]byte("{}")))), batch.ErrUnreachable)
}

func modelLarge(t T, p ModelPorts) {
	for _, status := range []int{200, 500} {
		for extra, want := range map[int]error{0: nil, 1: batch.ErrReplyTooLarge, 100_000: batch.ErrReplyTooLarge} {
			m := p.New(t, func([]byte) ModelAnswer {
				return ModelAnswer{Reply: batch.Reply{Status: status, Body: pattern(ModelReplyBytes + extra)}}
			})
			_, err := m.Call(t.Context(), modelCall([]byte("{}")))
			refuses(t, fmt.Sprintf("status %d, %d bytes too many", status, extra), err, want)
		}
	}
}

func modelMany(t T, p ModelPorts) {
	m := p.New(t, func(body []byte) ModelAnswer { return ModelAnswer{Reply: batch.Reply{Status: 200, Body: body}} })
	race(racers, func(i int) struct{} {
		body := fmt.Append(nil, "call ", i)
		if got, err := m.Call(t.Context(), modelCall(body)); err != nil || !bytes.Equal(got.Body, body) {
			t.Errorf("%q is answered with %q, %v", body, got.Body, err)
		}
		return struct{}{}
	})
}

// modelEnds: the caller's own end is its own error, so that a worker that is
// told to stop blames nobody.
func modelEnds(t T, p ModelPorts) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	m := p.New(t, func([]byte) ModelAnswer {
		return ModelAnswer{Reply: batch.Reply{Status: 200, Body: []byte("{}")}, Wait: cancel, Stall: true}
	})
	err := fault(m.Call(ctx, modelCall([]byte("{}"))))
	refuses(t, "call", err, context.Canceled)
	for _, other := range []error{batch.ErrTimeout, batch.ErrUnreachable, batch.ErrReplyTooLarge} {
		if errors.Is(err, other) {
			t.Errorf("the caller's end is %v", err)
		}
	}
}

func modelInterrupted(t T, p ModelPorts) {
	m := p.New(t, func([]byte) ModelAnswer { return ModelAnswer{Reply: batch.Reply{Status: 200}} })
	interrupts(t, map[string]func(context.Context) error{
		"Call": func(ctx context.Context) error { return fault(m.Call(ctx, modelCall(nil))) },
	})
}
