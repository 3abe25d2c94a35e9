package door

import (
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"holdfast/internal/access"
	"holdfast/internal/batch"
	"holdfast/internal/bridge"
	"holdfast/internal/openai"
)

// Site is the installation that the doors lead to.
type Site struct {
	Inputs    string       // the bucket of inputs
	Results   string       // the bucket of results, for error objects
	Allow     openai.Allow // neither list is empty; the first of each is the default
	FileBytes int64        // the largest input
	Service   string       // bridge.Request.Service of what comes in
	// FileExpiry is how long an object can be an input, from when it was stored: as
	// long as its file lives. 0: for ever.
	FileExpiry time.Duration
}

// Options tune a door; the zero value works.
type Options struct {
	Observer batch.Observer // told of batch.MetricRefused
	Log      *slog.Logger   // discarded by default
}

func (o *Options) orDefault() Options {
	out := Options{Log: slog.New(slog.DiscardHandler)}
	if o != nil {
		out.Observer = o.Observer
		if o.Log != nil {
			out.Log = o.Log
		}
	}
	return out
}

// Where objects lie that start batches, and what belongs to them.
const (
	folder      = "in/"            // in/<tenant>/<name>
	sidecarEnd  = ".holdfast.json" // <key>.holdfast.json says how the object is run
	errorEnd    = ".error.json"    // <tenant>/in/<name>.<version>.error.json says why it isn't
	maxKey      = 1024             // bytes, of S3
	maxSidecar  = 64 << 10
	peekedBytes = 64 << 10
)

// wishes is what a request says beside its input, as JSON values; nil: nothing.
type wishes struct {
	endpoint, window, metadata, expiry jsontext.Value
}

// settle makes r what w asks for, or says what the API would.
func (s Site) settle(r *bridge.Request, w wishes) *openai.Error {
	if absent(w.window) {
		w.window = quote(s.Allow.Windows[0])
	}
	body, err := json.Marshal(struct {
		InputFileID        string         `json:"input_file_id"`
		Endpoint           jsontext.Value `json:"endpoint"`
		CompletionWindow   jsontext.Value `json:"completion_window"`
		Metadata           jsontext.Value `json:"metadata"`
		OutputExpiresAfter jsontext.Value `json:"output_expires_after"`
	}{"file-", w.endpoint, w.window, w.metadata, w.expiry})
	if err != nil {
		return openai.InvalidJSON(where(err))
	}
	c, err := openai.ParseCreateBatch(strings.NewReader(string(body)), s.Allow)
	if err != nil {
		return asError(err)
	}
	r.Endpoint, r.Window, r.Metadata = c.Endpoint, c.CompletionWindow, c.Metadata
	if c.OutputExpiresAfter != nil {
		r.OutputExpiry = time.Duration(c.OutputExpiresAfter.Seconds) * time.Second
	}
	return nil
}

// size refuses what can't be an input for its size.
func (s Site) size(o bridge.Object, own int64) *openai.Error {
	limit := s.FileBytes
	if own > 0 {
		limit = min(limit, own)
	}
	switch {
	case o.Bytes == 0:
		e := openai.EmptyFile()
		return openai.Invalid(e.Code, "", "%s", e.Message)
	case o.Bytes > limit:
		return openai.FileTooLarge(limit)
	}
	return nil
}

// expired refuses what is older than a file may be.
func (s Site) expired(o bridge.Object, now time.Time) *openai.Error {
	if s.FileExpiry == 0 || now.Before(o.StoredAt.Add(s.FileExpiry)) {
		return nil
	}
	return openai.Invalid("object_expired", "key", "The object %q was stored at %s, and an input is kept for %s from then on; put it again.",
		clip(o.Key, 200), o.StoredAt.UTC().Format(time.RFC3339), s.FileExpiry)
}

// unreadable says why nobody here will ever get an object's bytes; nil of trouble that
// may pass.
func unreadable(err error) *openai.Error {
	switch {
	case errors.Is(err, batch.ErrArchived):
		return openai.Invalid("object_archived", "key", "The object lies in an archive of S3, where nobody can read it; restore it and put a copy of it, in a storage class that is read at once.")
	case errors.Is(err, batch.ErrCustomerKey):
		return openai.Invalid("object_encrypted", "key", "The object is encrypted with a key that S3 doesn't keep (SSE-C), so that Holdfast can't read it; put it without one.")
	}
	return nil
}

// tenantOf splits a key of a drop. It isn't ok where the key has no folder of a
// tenant's.
func tenantOf(key string) (tenant, name string, ok bool) {
	rest, ok := strings.CutPrefix(key, folder)
	if !ok {
		return "", "", false
	}
	tenant, name, ok = strings.Cut(rest, "/")
	return tenant, name, ok && access.CheckTenant(tenant) == nil
}

// checkName refuses names that don't come through: clients and proxies resolve
// dots to another key, listings can't hold control characters.
func checkName(name string) *openai.Error {
	if name == "" {
		return openai.Invalid("invalid_key", "key", "The key is the tenant's folder itself; give the object a name in it.")
	}
	for segment := range strings.SplitSeq(name, "/") {
		if segment == "." || segment == ".." {
			return openai.Invalid("invalid_key", "key", "The key has a segment '%s', which many programs take for another folder; choose another name.", segment)
		}
	}
	control := func(r rune) bool { return r < ' ' || r == 0x7f }
	if i := strings.IndexFunc(name, control); i >= 0 {
		return openai.Invalid("invalid_key", "key", "The key's name has the control character %q at byte %d; choose another name.", name[i], i)
	}
	return nil
}

func gone(o bridge.Object) *openai.Error {
	what := "The object"
	if o.Version != "" {
		what = "This version of the object"
	}
	return openai.Invalid("object_not_found", "key", "%s isn't there: it was never written, or deleted before it was read.", what)
}

// absent reports whether a value is missing, or null, which is the same.
func absent(v jsontext.Value) bool { return len(v) == 0 || v.Kind() == 'n' }

// quote is s as JSON; what is no UTF-8 in it becomes U+FFFD.
func quote(s string) jsontext.Value {
	v, _ := jsontext.AppendQuote(nil, strings.ToValidUTF8(s, "\ufffd"))
	return v
}
