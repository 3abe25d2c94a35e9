package gateway

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"holdfast/internal/access"
	"holdfast/internal/openai"
)

// Of what a caller did wrong the log has the code: what the answer says, and why that is,
// may quote him. The cause of our own trouble is there.
func TestLogOfRefusals(t *testing.T) {
	wrong := openai.InvalidJSON("PLANTED")
	wrong.Err = errors.New("PLANTED")
	for _, c := range []struct {
		err        *openai.Error
		code, says string
	}{
		{wrong, "invalid_json", ""},
		{openai.Unavailable(time.Second, errors.New("the table is slow")), "service_unavailable", "the table is slow"},
	} {
		var log bytes.Buffer
		g := &Gateway{log: slog.New(slog.NewJSONHandler(&log, nil)), now: time.Now}
		x := &exchange{ResponseWriter: httptest.NewRecorder(), id: "r", route: "/v1/x", who: access.Identity{Line: access.NoLine}, err: c.err}
		g.report(httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/x?PLANTED", nil), x)
		if said := log.String(); strings.Contains(said, "PLANTED") || !strings.Contains(said, c.says) || !strings.Contains(said, `"code":"`+c.code) {
			t.Errorf("logged: %s", said)
		}
	}
}

// told is a store of receipts that notes how long it may take.
type told struct {
	access.Receipts
	within []time.Duration
}

func (r *told) note(ctx context.Context) error {
	end, _ := ctx.Deadline() // none is long ago
	r.within = append(r.within, time.Until(end))
	return ctx.Err()
}

func (r *told) Intend(ctx context.Context, _ access.Receipt) error { return r.note(ctx) }
func (r *told) Complete(ctx context.Context, _ access.ReceiptName, _ access.Completion) error {
	return r.note(ctx)
}

// A table that stands still holds up nobody for long, and a receipt is completed when
// the client is long gone.
func TestReceiptsHaveTheirTime(t *testing.T) {
	var log bytes.Buffer
	r := &told{}
	g := &Gateway{ports: Ports{Receipts: r}, log: slog.New(slog.NewJSONHandler(&log, nil))}
	if err := g.intend(t.Context(), access.Receipt{}); err != nil {
		t.Error(err)
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	g.complete(gone, access.ReceiptName{}, access.Completion{})
	for i, most := range []time.Duration{intendTime, completeTime} {
		if r.within[i] <= 0 || r.within[i] > most {
			t.Errorf("call %d has %s, want %s at most", i, r.within[i], most)
		}
	}
	if log.Len() > 0 {
		t.Errorf("logged: %s", &log)
	}
}
