package door

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"mime"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"holdfast/internal/access"
	"holdfast/internal/batch"
	"holdfast/internal/bridge"
	"holdfast/internal/openai"
)

// The names of what a sidecar says, as the API has them, and of the object's
// metadata: x-amz-meta-endpoint and so on, where the last two are JSON. Both go with
// '-' for '_' as well: a header is usually written so, JSON the other way.
const (
	saysEndpoint = "endpoint"
	saysWindow   = "completion_window"
	saysMetadata = "metadata"
	saysExpiry   = "output_expires_after"
)

// wishes takes each of the four from the object's own metadata, else from its
// sidecar, else from the tenant's defaults; the installation's come last, in
// settle.
func (d *Drops) wishes(ctx context.Context, o bridge.Object, given map[string]string, defaults access.Drop) (wishes, error) {
	w, err := metadata(given)
	if err != nil {
		return w, err
	}
	if absent(w.endpoint) || absent(w.window) || absent(w.metadata) || absent(w.expiry) {
		beside, err := d.sidecar(ctx, o)
		if err != nil {
			return w, err
		}
		for _, v := range []struct {
			to   *jsontext.Value
			from jsontext.Value
		}{{&w.endpoint, beside.endpoint}, {&w.window, beside.window}, {&w.metadata, beside.metadata}, {&w.expiry, beside.expiry}} {
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

// metadata reads an object's own. What else is in it is its owner's.
func metadata(given map[string]string) (w wishes, err error) {
	value := func(name string) string {
		hyphened := strings.ReplaceAll(name, "_", "-")
		one, other := text(given[hyphened]), text(given[name])
		if hyphened != name && one != "" && other != "" {
			err = refused(openai.Invalid("invalid_metadata", name, "The object's metadata has %q in both spellings, with '-' and with '_'; give one.", name))
		}
		return cmp.Or(one, other)
	}
	if s := value(saysEndpoint); s != "" {
		w.endpoint = quote(s)
	}
	if s := value(saysWindow); s != "" {
		w.window = quote(s)
	}
	var v any
	if s := value(saysMetadata); s != "" {
		w.metadata = jsontext.Value(s)
		if err := json.Unmarshal(w.metadata, &v); err != nil {
			return w, refused(openai.InvalidMetadata("x-amz-meta-metadata must be a JSON object whose values are strings: " + where(err)))
		}
	}
	if s := value(saysExpiry); s != "" {
		w.expiry = jsontext.Value(s)
		if err := json.Unmarshal(w.expiry, &v); err != nil {
			return w, refused(openai.InvalidExpiresAfter(saysExpiry, "x-amz-meta-output-expires-after must be a JSON object with anchor and seconds: "+where(err)))
		}
	}
	return w, err
}

// sidecar reads the file beside the object, if there is one. It is the newest
// version that counts: it was there before the object, or it came too late.
func (d *Drops) sidecar(ctx context.Context, o bridge.Object) (wishes, error) {
	key := o.Key + sidecarEnd
	if len(key) > maxKey {
		return wishes{}, nil // no object has such a name
	}
	data, err := d.ports.Inputs.Peek(ctx, bridge.Object{Bucket: o.Bucket, Key: key}, maxSidecar+1)
	switch fault := unreadable(err); {
	case errors.Is(err, batch.ErrNotFound):
		return wishes{}, nil
	case fault != nil:
		return wishes{}, refused(invalidSidecar("it lies in an archive, or under a key of its owner's"))
	case err != nil:
		return wishes{}, fmt.Errorf("read a sidecar: %w", err)
	case len(data) > maxSidecar:
		return wishes{}, refused(invalidSidecar(fmt.Sprintf("it is larger than %d bytes", maxSidecar)))
	}
	data = bytes.TrimPrefix(data, byteOrderMark) // some editors write it, and an input may begin with it, too
	var raw map[string]jsontext.Value
	if jsontext.Value(data).Kind() == 'n' { // null would be an object without members
		return wishes{}, refused(invalidSidecar("it must be a JSON object"))
	}
	if err := json.Unmarshal(data, &raw); err != nil {
		return wishes{}, refused(invalidSidecar(where(err)))
	}
	// A member that means nothing is a mistake: the file is there for these alone.
	var w wishes
	for _, name := range slices.Sorted(maps.Keys(raw)) {
		to := map[string]*jsontext.Value{
			saysEndpoint: &w.endpoint, saysWindow: &w.window, saysMetadata: &w.metadata, saysExpiry: &w.expiry,
		}[strings.ReplaceAll(name, "-", "_")]
		switch {
		case to == nil:
			return w, refused(invalidSidecar(fmt.Sprintf("it has a member %q, which means nothing; known are %s, %s, %s and %s",
				clip(name, 100), saysEndpoint, saysWindow, saysMetadata, saysExpiry)))
		case *to != nil:
			return w, refused(invalidSidecar(fmt.Sprintf("it has %q in both spellings", strings.ReplaceAll(name, "-", "_"))))
		}
		*to = raw[name]
	}
	return w, nil
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
