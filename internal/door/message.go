package door

import (
	"context"
	"errors"
	"fmt"
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
	inputs Inputs
	dead   DeadLetters
	site   Site
	o      Options
}

var _ bridge.Door = (*Messages)(nil)

// NewMessages returns the queue door of an installation.
func NewMessages(inputs Inputs, dead DeadLetters, s Site, o *Options) *Messages {
	return &Messages{inputs, dead, s, o.orDefault()}
}

// letter is a message, once it has passed its schema.
type letter struct {
	V             int    `json:"v"`
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
// reason names the place, as a JSON pointer or a byte.
func (m *Messages) Open(ctx context.Context, l bridge.Letter, now time.Time) (bridge.Request, error) {
	in, err := read(l.Body)
	if err != nil {
		return bridge.Request{}, err
	}
	r := bridge.Request{
		Tenant: in.Tenant, CorrelationID: in.CorrelationID, RequestID: l.ID, Submitter: in.Principal,
		FileID: in.Input.FileID, Service: m.site.Service,
	}
	fault := m.site.settle(&r, wishes{in.Endpoint, in.CompletionWindow, in.Metadata, in.OutputExpiresAfter})
	if fault != nil {
		return bridge.Request{}, refuse(fault.Code, "/"+strings.ReplaceAll(fault.Param, ".", "/"), fault.Message)
	}
	if in.Input.FileID == "" {
		o, err := m.object(ctx, in)
		if err != nil {
			return bridge.Request{}, err
		}
		r.FileID, r.Object = o.FileID(r.Tenant), &o
	}
	return r, nil
}

// object is the input of a message that names an object.
func (m *Messages) object(ctx context.Context, in letter) (bridge.Object, error) {
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
	switch {
	case errors.Is(err, batch.ErrNotFound):
		fault := gone(bridge.Object{Version: input.Version})
		return bridge.Object{}, refuse(fault.Code, "/input", fault.Message)
	case err != nil:
		return bridge.Object{}, fmt.Errorf("look at an object: %w", err)
	}
	if fault := m.site.size(o, 0); fault != nil {
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
	if json.Unmarshal(body, &version) == nil && version.V.Kind() == '0' && string(version.V) != "1" {
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
	if err := json.Unmarshal(body, &in); err != nil {
		return letter{}, refuse("invalid_message", "", "The message can't be read: "+where(err)+".")
	}
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
