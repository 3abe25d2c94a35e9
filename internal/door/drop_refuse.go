package door

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"holdfast/internal/batch"
	"holdfast/internal/bridge"
	"holdfast/internal/openai"
)

// Refusal is an error object: what is said of an input that started nothing, as
// the API words its errors.
type Refusal struct {
	Error   RefusalError `json:"error"`
	Bucket  string       `json:"bucket"`
	Key     string       `json:"key"`
	Version string       `json:"version"` // "" if it never became known
	Batch   string       `json:"batch"`   // what would have been its id, or the one whose key the object's id is; its events say the same
	At      time.Time    `json:"at"`
}

// RefusalError is the error of a Refusal.
type RefusalError struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    string  `json:"code"`
}

// Refuse leaves the error object and the event.
func (d *Drops) Refuse(ctx context.Context, l bridge.Letter, r bridge.Request, why error, now time.Time) error {
	e := asError(why)
	_, last := errors.AsType[*bridge.LastError](why)
	if last && r.Object == nil {
		r = d.named(l) // what ended its last try ended Open
	}
	if r.Tenant == "" || r.Object == nil {
		if err := d.ports.Dead.Send(ctx, l.Body, e.Code, e.Message); err != nil {
			return err
		}
		d.o.Observer.Add(batch.MetricRefused, 1)
		return nil
	}
	id := bridge.BatchID(r.Tenant, r.CorrelationID)
	if errors.Is(why, bridge.ErrConflict) {
		e = openai.Invalid("idempotency_conflict", "", "The object's own id, %s, was used before as the Idempotency-Key or correlation_id of a request for another input; put the object again: its next version has an id of its own.",
			clip(r.CorrelationID, maxReason))
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
	if _, err := d.ports.Refusals.Put(ctx, batch.Object{Bucket: d.site.Results, Key: ErrorKey(r.Tenant, *r.Object)}, append(data, '\n')); err != nil {
		return fmt.Errorf("leave an error object: %w", err)
	}
	at := now
	if ev, fault := readEvent(l.Body); !last && fault == nil && ev.Time.UnixMilli() > 0 {
		at = ev.Time // so that telling it twice is telling it once
	}
	if err := d.ports.Events.Record(ctx, batch.RefusalOf(r.Tenant, id, e, at.UTC().Truncate(time.Millisecond))); err != nil {
		return fmt.Errorf("record a refusal: %w", err)
	}
	if last {
		// It was no fault of the object's: once the trouble is over, an operator can send
		// the event again.
		if err := d.ports.Dead.Send(ctx, l.Body, e.Code, e.Message); err != nil {
			return err
		}
	}
	d.o.Observer.Add(batch.MetricRefused, 1)
	return nil
}

// named is as much of a request as the letter itself names: tenant, object and
// correlation id; the zero value if it names no input of a tenant's.
func (d *Drops) named(l bridge.Letter) bridge.Request {
	ev, fault := readEvent(l.Body)
	o := ev.object()
	tenant, name, ok := tenantOf(o.Key)
	if fault != nil || !ok || o.Bucket != d.site.Inputs || ev.DetailType != created || ev.folder() || strings.HasSuffix(name, sidecarEnd) {
		return bridge.Request{}
	}
	return d.request(l, tenant, o)
}

// ErrorKey is where in the results bucket the error object of an input lies:
// <tenant>/in/<name>.<version>.error.json. What is said of one version is never taken
// for another's, nor put in its place, in whatever order they come. Where the bucket
// keeps no versions the ETag stands for it. A name that is too long with that, or that
// many programs would take for another key, is the SHA-256 of the whole key there, and
// a version that no name can hold its own.
func ErrorKey(tenant string, o bridge.Object) string {
	digest := func(s string) string {
		sum := sha256.Sum256([]byte(s))
		return hex.EncodeToString(sum[:])
	}
	version := o.Version
	if version == "" || version == "null" {
		version = strings.Trim(o.ETag, `"`)
	}
	if len(version) > 100 || strings.ContainsFunc(version, func(r rune) bool { return r <= ' ' || r > '~' || r == '/' }) {
		version = digest(version)
	}
	_, name, _ := tenantOf(o.Key)
	end := "." + version + errorEnd
	beside := tenant + "/" + folder + name + end
	if len(beside) > maxKey || checkName(name) != nil || strings.HasSuffix(name, "/") {
		return tenant + "/" + folder + digest(o.Key) + end
	}
	return beside
}
