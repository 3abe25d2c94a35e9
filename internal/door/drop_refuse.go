package door

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"holdfast/internal/batch"
	"holdfast/internal/bridge"
)

// Refusal is an error object: what is said of an input that started nothing, as
// the API words its errors.
type Refusal struct {
	Error   RefusalError `json:"error"`
	Bucket  string       `json:"bucket"`
	Key     string       `json:"key"`
	Version string       `json:"version"` // "" if it never became known
	Batch   string       `json:"batch"`   // what would have been its id; its events say the same
	At      time.Time    `json:"at"`
}

// RefusalError is the error of a Refusal.
type RefusalError struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    string  `json:"code"`
}

// Refuse leaves the error object and the event. Under the same correlation id
// another request runs already only where this version's object was started
// before, under wishes that were others then: that is a duplicate, and nobody is
// to be told that it failed.
func (d *Drops) Refuse(ctx context.Context, l bridge.Letter, r bridge.Request, why error, now time.Time) error {
	e := asError(why)
	if r.Tenant == "" || r.Object == nil {
		if err := d.ports.Dead.Send(ctx, l.Body, e.Code, e.Message); err != nil {
			return err
		}
		d.o.Observer.Add(batch.MetricRefused, 1)
		return nil
	}
	id := bridge.BatchID(r.Tenant, r.CorrelationID)
	if errors.Is(why, bridge.ErrConflict) {
		d.o.Log.LogAttrs(ctx, slog.LevelInfo, "object was started before with other settings", slog.String("tenant", r.Tenant), slog.String("batch", id))
		return nil
	}
	said := Refusal{
		Error:  RefusalError{Message: e.Message, Type: e.Type, Code: e.Code},
		Bucket: r.Object.Bucket, Key: r.Object.Key, Version: r.Object.Version, Batch: id, At: now.UTC().Truncate(time.Millisecond),
	}
	if e.Param != "" {
		said.Error.Param = &e.Param
	}
	data, err := json.Marshal(said, jsontext.Multiline(true))
	if err != nil {
		return fmt.Errorf("word a refusal: %w", err)
	}
	if _, err := d.ports.Refusals.Put(ctx, batch.Object{Bucket: d.site.Results, Key: ErrorKey(r.Tenant, r.Object.Key)}, append(data, '\n')); err != nil {
		return fmt.Errorf("leave an error object: %w", err)
	}
	at := now
	if ev, fault := readEvent(l.Body); fault == nil && ev.Time.UnixMilli() > 0 {
		at = ev.Time // so that telling it twice is telling it once
	}
	if err := d.ports.Events.Record(ctx, batch.RefusalOf(r.Tenant, id, e, at.UTC().Truncate(time.Millisecond))); err != nil {
		return fmt.Errorf("record a refusal: %w", err)
	}
	d.o.Observer.Add(batch.MetricRefused, 1)
	return nil
}

// ErrorKey is where in the results bucket the error object lies of an input of
// this key: <tenant>/in/<name>.error.json. Names that are too long with that, or
// that many programs would take for another key, are their SHA-256 there.
func ErrorKey(tenant, key string) string {
	_, name, _ := tenantOf(key)
	beside := tenant + "/" + folder + name + errorEnd
	if len(beside) > maxKey || checkName(name) != nil || strings.HasSuffix(name, "/") {
		sum := sha256.Sum256([]byte(key))
		return tenant + "/" + folder + hex.EncodeToString(sum[:]) + errorEnd
	}
	return beside
}
