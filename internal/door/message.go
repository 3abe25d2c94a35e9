package door

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"holdfast/internal/access"
	"holdfast/internal/batch"
	"holdfast/internal/bridge"
	"holdfast/internal/openai"
)

// Messages is the queue door: a message of the schema in events/ is a request of
// the tenant that it names. Whoever may send to the queue is trusted to name
// tenant and principal. Safe for concurrent use.
type Messages struct {
	tenants Tenants
	inputs  Inputs
	dead    DeadLetters
	site    Site
	o       Options
}

var _ bridge.Door = (*Messages)(nil)

// NewMessages returns the queue door of an installation. Of a tenant's record it heeds
// the limits; there need be none.
func NewMessages(tenants Tenants, inputs Inputs, dead DeadLetters, s Site, o *Options) *Messages {
	return &Messages{tenants, inputs, dead, s, o.orDefault()}
}

// letter is a message, once it has passed its schema.
type letter struct {
	CorrelationID string `json:"correlation_id"`
	Tenant        string `json:"tenant"`
	Principal     string `json:"principal"`
	Input         struct {
		FileID  string `json:"file_id"`
		Bucket  string `json:"bucket"`
		Key     string `json:"key"`
		Version string `json:"version"`
	} `json:"input"`
	Endpoint           jsontext.Value `json:"endpoint"`
	CompletionWindow   jsontext.Value `json:"completion_window"`
	Metadata           jsontext.Value `json:"metadata"`
	OutputExpiresAfter jsontext.Value `json:"output_expires_after"`
}

// Open makes a request of a message. A refusal is a *bridge.RefusedError; its
// reason names the place, as a JSON pointer or a byte. What passed its schema comes with
// all of the request but what can't be known.
func (m *Messages) Open(ctx context.Context, l bridge.Letter, now time.Time) (bridge.Request, error) {
	in, err := read(l.Body)
	if err != nil {
		return bridge.Request{}, err
	}
	r := bridge.Request{
		Tenant: in.Tenant, CorrelationID: in.CorrelationID, RequestID: l.ID, Submitter: in.Principal,
		FileID: in.Input.FileID, Service: m.site.Service,
	}
	if in.Input.FileID == "" && in.Input.Version != "" && in.Input.Version != "null" {
		r.FileID = bridge.Object{Bucket: in.Input.Bucket, Key: in.Input.Key, Version: in.Input.Version}.FileID(in.Tenant)
	}
	fault := m.site.settle(&r, wishes{in.Endpoint, in.CompletionWindow, in.Metadata, in.OutputExpiresAfter})
	if fault != nil {
		m.repeat(&r, in)
		return r, refuse(fault.Code, "/"+strings.ReplaceAll(fault.Param, ".", "/"), fault.Message)
	}
	if in.Input.FileID == "" {
		o, err := m.object(ctx, in, now)
		if err != nil {
			return r, err
		}
		r.FileID, r.Object = o.FileID(r.Tenant), &o
	}
	return r, nil
}

// repeat makes r what the message says word for word, where that is no request any
// more: so it compares with what an earlier copy may have started.
func (m *Messages) repeat(r *bridge.Request, in letter) {
	r.Endpoint, r.Window = plain(in.Endpoint), plain(in.CompletionWindow)
	if r.Window == "" {
		r.Window = m.site.Allow.Windows[0]
	}
	if !absent(in.Metadata) {
		_ = json.Unmarshal(in.Metadata, &r.Metadata) // the schema saw to its form
	}
	var expires struct {
		Seconds int64 `json:"seconds"`
	}
	if !absent(in.OutputExpiresAfter) && json.Unmarshal(in.OutputExpiresAfter, &expires) == nil {
		r.OutputExpiry = time.Duration(expires.Seconds) * time.Second
	}
}

// plain is the text of a JSON string; "" for anything else.
func plain(v jsontext.Value) (text string) {
	_ = json.Unmarshal(v, &text)
	return text
}

// Same is bridge.Door.Same: a correlation_id is one request's, so what it stands for
// must be what this message asks for. Which version of an object that was, a message
// that names none can't say: the key's newest then, which by now may be another, or gone.
// Of "null", the version of all that is put while a bucket keeps none, it is so among
// those alone.
func (m *Messages) Same(l bridge.Letter, r bridge.Request, found bridge.Row) bool {
	in, err := read(l.Body)
	o := found.Request.Object
	if err == nil && o != nil && o.Bucket == in.Input.Bucket && o.Key == in.Input.Key &&
		(in.Input.Version == "" || in.Input.Version == "null" && (o.Version == "" || o.Version == "null")) {
		r.FileID = found.Request.FileID
	}
	return r.Hash() == found.Hash
}

// object is the input of a message that names an object.
func (m *Messages) object(ctx context.Context, in letter, now time.Time) (bridge.Object, error) {
	input := in.Input
	tenant, name, ok := tenantOf(input.Key)
	switch {
	case input.Bucket != m.site.Inputs:
		return bridge.Object{}, refuse("invalid_bucket", "/input/bucket", fmt.Sprintf("The bucket %q isn't this installation's, and Holdfast can read no other.", clip(input.Bucket, 100)))
	case !ok || tenant != in.Tenant || name == "":
		return bridge.Object{}, refuse("invalid_key", "/input/key", fmt.Sprintf("The key doesn't lie in the tenant's folder %s%s/.", folder, in.Tenant))
	case len(input.Key) > maxKey:
		return bridge.Object{}, refuse("invalid_key", "/input/key", fmt.Sprintf("The key has %d bytes; the most is %d.", len(input.Key), maxKey))
	}
	if fault := checkName(name); fault != nil {
		return bridge.Object{}, refuse(fault.Code, "/input/key", fault.Message)
	}
	o, _, err := m.inputs.Head(ctx, input.Bucket, input.Key, input.Version)
	switch fault := unreadable(err); {
	case errors.Is(err, batch.ErrNotFound):
		fault := gone(bridge.Object{Version: input.Version})
		return bridge.Object{}, refuse(fault.Code, "/input", fault.Message)
	case fault != nil:
		return bridge.Object{}, refuse(fault.Code, "/input", fault.Message)
	case err != nil:
		return bridge.Object{}, fmt.Errorf("look at an object: %w", err)
	}
	t, err := m.tenants.Get(ctx, in.Tenant, now)
	if err != nil && !errors.Is(err, access.ErrNoTenant) {
		return bridge.Object{}, fmt.Errorf("read tenant %s: %w", in.Tenant, err)
	}
	if fault := m.site.expired(o, now); fault != nil {
		return bridge.Object{}, refuse(fault.Code, "/input", fault.Message)
	}
	if fault := m.site.size(o, t.Limits.FileBytes); fault != nil {
		return bridge.Object{}, refuse(fault.Code, "/input", fault.Message)
	}
	return o, nil
}

// read judges a message by its schema, and by what a schema can't say.
func read(body []byte) (letter, error) {
	var version struct {
		V jsontext.Value `json:"v"`
	}
	// Another version may have another schema: what else is wrong doesn't matter.
	if json.Unmarshal(body, &version, unchecked) == nil && version.V.Kind() == '0' && !one(version.V) {
		return letter{}, refuse("unsupported_version", "/v", fmt.Sprintf("The message has the version %s; this program reads 1.", clip(string(version.V), 40)))
	}
	broken, err := violation(body)
	if err != nil {
		return letter{}, err
	}
	if broken != "" {
		return letter{}, &bridge.RefusedError{Code: "invalid_message", Reason: broken}
	}
	var in letter
	if err := json.Unmarshal(body, &in, unchecked); err != nil {
		return letter{}, refuse("invalid_message", "", "The message can't be read: "+where(err)+".")
	}
	in.OutputExpiresAfter = plainSeconds(in.OutputExpiresAfter)
	if len(in.CorrelationID) > bridge.MaxCorrelationID {
		return letter{}, refuse("invalid_message", "/correlation_id", fmt.Sprintf("It has %d bytes; the most is %d.", len(in.CorrelationID), bridge.MaxCorrelationID))
	}
	// The schema says the same. These decide: a tenant is part of keys.
	if err := access.CheckTenant(in.Tenant); err != nil {
		return letter{}, refuse("invalid_message", "/tenant", err.Error())
	}
	if err := access.CheckPrincipal(in.Principal); err != nil {
		return letter{}, refuse("invalid_message", "/principal", err.Error())
	}
	return in, nil
}

// one reports whether a JSON number is 1, which has many spellings: 1.0, 1e0, …
func one(v jsontext.Value) bool {
	n, err := strconv.ParseFloat(string(v), 64)
	return err == nil && n == 1
}

// plainSeconds spells an expiry's seconds, which the schema has found to be a whole
// number in whichever spelling (3.6e3, 3600.0), in digits, as the API takes them.
func plainSeconds(v jsontext.Value) jsontext.Value {
	var given struct {
		Anchor  string  `json:"anchor"`
		Seconds float64 `json:"seconds"`
	}
	if absent(v) || json.Unmarshal(v, &given) != nil {
		return v
	}
	return jsontext.Value(fmt.Sprintf(`{"anchor":%s,"seconds":%.0f}`, quote(given.Anchor), given.Seconds))
}

func refuse(code, at, reason string) *bridge.RefusedError {
	return &bridge.RefusedError{Code: code, Reason: fmt.Sprintf("At '%s': %s", at, reason)}
}

// Refuse lays the message with the dead letters.
func (m *Messages) Refuse(ctx context.Context, l bridge.Letter, _ bridge.Request, why error, _ time.Time) error {
	e := asError(why)
	if errors.Is(why, bridge.ErrConflict) {
		e = openai.Invalid("idempotency_conflict", "correlation_id", "At '/correlation_id': It was used with a different request; use a new one for a new request.")
	}
	if err := m.dead.Send(ctx, l.Body, e.Code, e.Message); err != nil {
		return err
	}
	m.o.Observer.Add(batch.MetricRefused, 1)
	return nil
}
