package door

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"holdfast/internal/access"
	"holdfast/internal/batch"
	"holdfast/internal/bridge"
	"holdfast/internal/openai"
)

// The names of an object's metadata that say how it is run: x-amz-meta-endpoint
// and so on. The last is a JSON object of strings.
const (
	metaEndpoint = "endpoint"
	metaWindow   = "completion-window"
	metaMetadata = "metadata"
)

// wishes takes each of the three from the object's own metadata, else from its
// sidecar, else from the tenant's defaults; the installation's come last, in
// settle.
func (d *Drops) wishes(ctx context.Context, o bridge.Object, given map[string]string, defaults access.Drop) (wishes, error) {
	var w wishes
	if s := text(given[metaEndpoint]); s != "" {
		w.endpoint = quote(s)
	}
	if s := text(given[metaWindow]); s != "" {
		w.window = quote(s)
	}
	if s := text(given[metaMetadata]); s != "" {
		w.metadata = jsontext.Value(s)
		var v any
		if err := json.Unmarshal(w.metadata, &v); err != nil {
			return w, refused(openai.InvalidMetadata("x-amz-meta-metadata must be a JSON object whose values are strings: " + where(err)))
		}
	}
	if absent(w.endpoint) || absent(w.window) || absent(w.metadata) {
		beside, err := d.sidecar(ctx, o)
		if err != nil {
			return w, err
		}
		for _, v := range []struct {
			to   *jsontext.Value
			from jsontext.Value
		}{{&w.endpoint, beside.endpoint}, {&w.window, beside.window}, {&w.metadata, beside.metadata}} {
			if absent(*v.to) {
				*v.to = v.from
			}
		}
	}
	if absent(w.endpoint) {
		w.endpoint = quote(d.site.Allow.Endpoints[0])
		if defaults.Endpoint != "" {
			w.endpoint = quote(defaults.Endpoint)
		}
	}
	if absent(w.window) && defaults.Window != "" {
		w.window = quote(defaults.Window)
	}
	return w, nil
}

// sidecar reads the file beside the object, if there is one. It is the newest
// version that counts: it was there before the object, or it came too late.
func (d *Drops) sidecar(ctx context.Context, o bridge.Object) (wishes, error) {
	key := o.Key + sidecarEnd
	if len(key) > maxKey {
		return wishes{}, nil // no object has such a name
	}
	data, err := d.ports.Inputs.Peek(ctx, bridge.Object{Bucket: o.Bucket, Key: key}, maxSidecar+1)
	switch {
	case errors.Is(err, batch.ErrNotFound):
		return wishes{}, nil
	case err != nil:
		return wishes{}, fmt.Errorf("read a sidecar: %w", err)
	case len(data) > maxSidecar:
		return wishes{}, refused(invalidSidecar(fmt.Sprintf("it is larger than %d bytes", maxSidecar)))
	}
	var raw struct {
		Endpoint         jsontext.Value `json:"endpoint"`
		CompletionWindow jsontext.Value `json:"completion_window"`
		Metadata         jsontext.Value `json:"metadata"`
	}
	if jsontext.Value(data).Kind() == 'n' { // null would be an object without members
		return wishes{}, refused(invalidSidecar("it must be a JSON object"))
	}
	if err := json.Unmarshal(data, &raw); err != nil {
		return wishes{}, refused(invalidSidecar(where(err)))
	}
	return wishes{endpoint: raw.Endpoint, window: raw.CompletionWindow, metadata: raw.Metadata}, nil
}

func invalidSidecar(reason string) *openai.Error {
	return openai.Invalid("invalid_sidecar", sidecarEnd, "The sidecar (the object's key and %s) can't be used: %s.", sidecarEnd, reason)
}

// text is a value of an object's metadata. S3 gives those that hold more than
// ASCII encoded by RFC 2047.
func text(value string) string {
	if decoded, err := new(mime.WordDecoder).DecodeHeader(value); err == nil {
		value = decoded
	}
	return strings.TrimSpace(value)
}
