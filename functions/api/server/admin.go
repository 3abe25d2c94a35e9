package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/openai"
	"holdfast/internal/reap"
)

// An administrator's view of one tenant: its own. Another's batches look as if
// there were none.

// reclaimTime bounds a reclaim; the HTTP API waits for 30 s. The reaper begins
// nothing in the last five.
const reclaimTime = 20 * time.Second

// reclaim does a round of the reaper over the caller's tenant, now, and answers
// what was done. With more, time was up: calling again goes on.
func (s *Server) reclaim(w http.ResponseWriter, r *request) error {
	ctx, cancel := context.WithTimeout(r.Context(), reclaimTime)
	defer cancel()
	report, err := s.ports.Reaper.Round(ctx, reap.Scope{Tenant: r.caller.Tenant}, r.now)
	if err != nil && report.Done() == 0 {
		return err
	}
	if err != nil {
		report.Failed++ // what was done is told; a shard that couldn't be read is left to the next round
	}
	return openai.WriteJSON(w, http.StatusOK, struct {
		Object string `json:"object"`
		reap.Report
	}{"reclaim", report})
}

// Pages of dead parts.
const defaultDead = 20

func (s *Server) listDead(w http.ResponseWriter, r *request) error {
	query := r.URL.Query()
	page, err := openai.ParsePage(query, defaultDead, reap.MaxDead)
	if err != nil {
		return err
	}
	if query.Has("order") && !page.Ascending {
		return openai.Invalid("invalid_order", "order", "Invalid order \"desc\": dead parts are listed by the end of their grace, the next one first.")
	}
	after, ok := parsePlace(page.After)
	if !ok {
		return openai.InvalidCursor(page.After)
	}
	parts, more, err := s.ports.Reaper.Dead(r.Context(), r.caller.Tenant, after, page.Limit)
	if err != nil {
		return err
	}
	data := make([]openai.BatchPart, len(parts))
	for i, p := range parts {
		data[i] = partToWire(p)
	}
	return openai.WriteList(w, data, more, maxListBytes)
}

// showDead shows one part, in whatever state it is.
func (s *Server) showDead(w http.ResponseWriter, r *request) error {
	id, number := r.PathValue("batch"), r.PathValue("part")
	if _, err := s.find(r, id); err != nil {
		return err
	}
	n, err := strconv.ParseUint(number, 10, 31)
	if err != nil {
		return openai.PartNotFound(id, number)
	}
	p, err := s.ports.Parts.Get(r.Context(), batch.PartKey{Tenant: r.caller.Tenant, Batch: id, N: int(n)})
	if errors.Is(err, batch.ErrNotFound) {
		return openai.PartNotFound(id, number)
	}
	if err != nil {
		return err
	}
	return openai.WriteJSON(w, http.StatusOK, partToWire(p))
}

// redrive brings a dead part back. What refuses it is the table, in one write;
// what is read here only says why.
func (s *Server) redrive(w http.ResponseWriter, r *request) error {
	in, err := openai.ParseRedrive(r.Body)
	if err != nil {
		return err
	}
	b, err := s.find(r, in.BatchID)
	if err != nil {
		return err
	}
	key := batch.PartKey{Tenant: r.caller.Tenant, Batch: in.BatchID, N: in.Part}
	p, err := s.ports.Reaper.Redrive(r.Context(), key, r.now)
	switch {
	case err == nil:
		return openai.WriteJSON(w, http.StatusOK, partToWire(p))
	case errors.Is(err, batch.ErrNotFound):
		return openai.PartNotFound(in.BatchID, strconv.Itoa(in.Part))
	case errors.Is(err, batch.ErrStatus):
		return openai.BatchNotRunning(in.BatchID, wireStatus(b))
	case errors.Is(err, batch.ErrAlive), errors.Is(err, batch.ErrOver), errors.Is(err, batch.ErrStale):
		if b.Status != batch.InProgress || b.Ending != "" {
			return openai.BatchNotRunning(in.BatchID, wireStatus(b))
		}
		state := "no longer dead"
		if seen, err := s.ports.Parts.Get(r.Context(), key); err == nil && seen.State != batch.Dead {
			state = string(seen.State)
		}
		return openai.PartNotDead(in.BatchID, in.Part, state)
	}
	return err
}

// wireStatus is the status as the wire shows it, and how the batch ends where that
// doesn't say so.
func wireStatus(b batch.Batch) string {
	status := batch.ToWire(b, batch.Standing{}).Status
	switch {
	case b.Status.Terminal() || b.Ending == "" || b.Ending == batch.Cancelled:
		return status
	}
	return status + " and ends as " + string(b.Ending)
}

func partToWire(p batch.Part) openai.BatchPart {
	w := openai.BatchPart{
		ID: placeID(reap.PlaceOf(p)), Object: "batch.part", BatchID: p.Batch, Part: p.N, State: string(p.State),
		FirstLine: p.FirstLine, Lines: p.Lines, Processed: p.Processed, Attempts: p.Attempts, Lapses: p.Lapses, Steals: p.Steals,
		LastError: p.LastError,
	}
	if !p.DeadAt.IsZero() {
		at := p.DeadAt.Unix()
		w.DeadAt = &at
	}
	if p.State == batch.Dead && !p.Due.IsZero() {
		at := p.Due.Unix()
		w.SealsAt = &at
	}
	return w
}

// placeID is a place in the list of dead parts, fit for URLs.
func placeID(p reap.Place) string {
	at := int64(0)
	if !p.At.IsZero() {
		at = p.At.UnixMilli()
	}
	return fmt.Sprintf("%013d.%08d.%s", at, p.Part, p.Batch)
}

// parsePlace is the reverse; "" is the place before all.
func parsePlace(id string) (p reap.Place, ok bool) {
	if id == "" {
		return p, true
	}
	f := strings.SplitN(id, ".", 3)
	if len(f) != 3 || !batch.ValidID(f[2]) {
		return p, false
	}
	at, err1 := strconv.ParseInt(f[0], 10, 64)
	n, err2 := strconv.ParseUint(f[1], 10, 31)
	if err1 != nil || err2 != nil || at < 0 {
		return p, false
	}
	return reap.Place{At: time.UnixMilli(at).UTC(), Batch: f[2], Part: int(n)}, true
}
