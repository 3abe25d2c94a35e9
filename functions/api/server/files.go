package server

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/openai"
)

// linkTime is how long a content URL works: long enough to start a download of
// any size, short enough for a URL that is a credential.
const linkTime = 10 * time.Minute

// uploadFile stores the bytes, then the record. The form is read to its end
// first, so that one that turns out to be wrong leaves nothing; an object whose
// record failed is nobody's file and goes with the bucket's lifecycle.
func (s *Server) uploadFile(w http.ResponseWriter, r *request) error {
	limit, err := s.fileBytes(r, s.settings.DirectBytes)
	if err != nil {
		return err
	}
	var data bytes.Buffer
	// What was announced is taken once, instead of doubling up to it.
	data.Grow(int(min(max(r.ContentLength, 0), limit) + bytes.MinRead))
	form, err := openai.ReadFileForm(r.Request, limit, func(_, _ string, body io.Reader) error {
		_, err := data.ReadFrom(body)
		return err
	})
	if err != nil {
		return tooLarge(err, limit, s.settings.DirectBytes)
	}
	at := r.now.UTC().Truncate(time.Millisecond)
	expiry := s.settings.FileExpiry
	if form.ExpiresAfter != nil {
		expiry = time.Duration(form.ExpiresAfter.Seconds) * time.Second
	}
	f := batch.File{
		Tenant: r.caller.Tenant, ID: "file-" + strings.ToLower(rand.Text()),
		Purpose: form.Purpose, Filename: form.Filename,
		CreatedAt: at, ExpiresAt: at.Add(expiry),
	}
	f.Object, err = s.ports.Objects.Put(r.Context(), batch.Object{Bucket: s.inputs, Key: "files/" + f.Tenant + "/" + f.ID}, data.Bytes())
	if err != nil {
		return fmt.Errorf("store the bytes of %s: %w", f.ID, err)
	}
	if err := s.ports.Files.Put(r.Context(), f); err != nil {
		return fmt.Errorf("record %s: %w", f.ID, err)
	}
	return openai.WriteJSON(w, http.StatusOK, batch.FileToWire(f))
}

// file reads the record that the path names. Unknown, expired and another
// tenant's are one.
func (s *Server) file(r *request) (batch.File, error) {
	id := r.PathValue("id")
	if !validFileID(id) {
		return batch.File{}, openai.FileNotFound(id)
	}
	f, err := s.ports.Files.Get(r.Context(), r.caller.Tenant, id)
	if errors.Is(err, batch.ErrNotFound) || err == nil && f.Expired(r.now) {
		unknown := openai.FileNotFound(id)
		unknown.Err = err
		return batch.File{}, unknown
	}
	return f, err
}

// validFileID keeps from the table what can't be a file's id, an empty or a
// huge one above all.
func validFileID(id string) bool {
	rest, ok := strings.CutPrefix(id, "file-")
	return ok && rest != "" && len(rest) <= 128 && !strings.ContainsFunc(rest, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_')
	})
}

func (s *Server) getFile(w http.ResponseWriter, r *request) error {
	f, err := s.file(r)
	if err != nil {
		return err
	}
	return openai.WriteJSON(w, http.StatusOK, batch.FileToWire(f))
}

// maxInline is the largest content that is answered in the reply itself. As
// base64 it is 5.6 MB of the 6 MB that a function may answer with.
const maxInline = 4 << 20

// getContent hands out a file's bytes.
func (s *Server) getContent(w http.ResponseWriter, r *request) error {
	f, err := s.file(r)
	if err != nil {
		return err
	}
	err = s.handOut(w, r, f.Object, f.Filename)
	switch {
	case errors.Is(err, batch.ErrNotFound):
		return openai.FileNotFound(f.ID) // a delete that got half-way
	case err != nil:
		return fmt.Errorf("content of %s: %w", f.ID, err)
	}
	return nil
}

// handOut redirects to a URL of the store that carries its own right: results are
// larger than what a function may answer. The official Go client refuses to follow
// a redirect to another origin, which the store is, and gets what fits in the reply;
// every other one is sent there, so that no function pays for its bytes. ErrNotFound
// only where it was read.
func (s *Server) handOut(w http.ResponseWriter, r *request, o batch.Object, filename string) error {
	if r.Header.Get("X-Stainless-Lang") == "go" && o.Bytes <= maxInline {
		return s.sendBytes(w, r, o)
	}
	url, err := s.ports.Links.Presign(r.Context(), o, filename, "application/jsonl", linkTime)
	if err != nil {
		return err
	}
	w.Header().Set("Location", url)
	w.Header().Set("Cache-Control", "no-store") // the URL is a credential
	w.Header().Set("Content-Length", "0")
	w.WriteHeader(http.StatusFound)
	return nil
}

// sendBytes answers with the bytes. They are read whole before the first is
// sent: a store that fails then is still a 503 and not half a file.
func (s *Server) sendBytes(w http.ResponseWriter, r *request, o batch.Object) error {
	body, err := s.ports.Objects.Open(r.Context(), o, 0, o.Bytes)
	if err != nil {
		return err
	}
	defer body.Close()
	data := make([]byte, o.Bytes)
	if _, err := io.ReadFull(body, data); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/jsonl")
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	_, err = w.Write(data)
	return err
}

// Pages of files, from the contract.
const maxFilePage = 10_000 // also the default

// maxListBytes bounds the JSON of a list. It is a string in the answer of the
// function, which may have 6 MB; there every quote and backslash takes a second
// byte, and nothing more than two.
const maxListBytes = 3<<20 - 64<<10

func (s *Server) listFiles(w http.ResponseWriter, r *request) error {
	query := r.URL.Query()
	page, err := openai.ParsePage(query, maxFilePage, maxFilePage)
	if err != nil {
		return err
	}
	if page.After != "" && !validFileID(page.After) {
		return openai.InvalidCursor(page.After)
	}
	files, more, err := s.ports.Files.List(r.Context(), r.caller.Tenant, batch.FileQuery{
		Purpose: query.Get("purpose"), After: page.After, Limit: page.Limit, Ascending: page.Ascending,
	}, r.now)
	if errors.Is(err, batch.ErrNotFound) {
		return openai.InvalidCursor(page.After)
	}
	if err != nil {
		return err
	}
	data := make([]openai.File, len(files))
	for i, f := range files {
		data[i] = batch.FileToWire(f)
	}
	return openai.WriteList(w, data, more, maxListBytes)
}

// deleteFile removes the bytes, then the record: what fails halfway can be asked
// for again, and nothing is left that nobody could name. Once the record is gone
// the file is unknown, to another DELETE too. Only a client that says it repeats
// itself gets the first answer again, which it didn't see.
//
// Creating a batch and deleting its input may pass each other by: the batch is
// recorded after holder looked, or the index doesn't show it yet. That batch is
// none the worse for it. It is pinned to the version of the object, which the
// bucket keeps readable for longer than a batch may run.
func (s *Server) deleteFile(w http.ResponseWriter, r *request) error {
	f, err := s.file(r)
	if errors.Is(err, batch.ErrDeleted) && resent(r.Header) {
		return openai.WriteJSON(w, http.StatusOK, openai.DeletedFile{ID: r.PathValue("id"), Deleted: true})
	}
	if err != nil {
		return err
	}
	switch id, err := s.holder(r.Context(), f); {
	case err != nil:
		return fmt.Errorf("look for the batch of %s: %w", f.ID, err)
	case id != "":
		return openai.FileInUse(f.ID, id)
	}
	if !s.dropped(f) {
		if err := s.ports.Objects.Delete(r.Context(), f.Object.Bucket, []string{f.Object.Key}); err != nil {
			return fmt.Errorf("delete the bytes of %s: %w", f.ID, err)
		}
	}
	// Deleted by another request meanwhile is deleted all the same.
	if err := s.ports.Files.Delete(r.Context(), f.Tenant, f.ID, r.now); err != nil && !errors.Is(err, batch.ErrNotFound) {
		return err
	}
	return openai.WriteJSON(w, http.StatusOK, openai.DeletedFile{ID: f.ID, Deleted: true})
}

// dropped reports whether the file is an object that somebody put into the inputs
// bucket. That stays its owner's, who has a name of his own for it and may have
// written it again since; it expires with the bucket's.
func (s *Server) dropped(f batch.File) bool {
	return f.Object.Bucket == s.inputs && !strings.HasPrefix(f.Object.Key, "files/")
}

// holder is the live batch that reads the file, or wrote it and isn't closed
// yet; "" if there is none.
func (s *Server) holder(ctx context.Context, f batch.File) (id string, err error) {
	if f.Purpose != openai.PurposeBatchOutput {
		// Two functions' clocks may differ: a batch may seem older than its input.
		return s.ports.Batches.Reading(ctx, f.Tenant, f.ID, f.CreatedAt.Add(-s.settings.Skew))
	}
	for _, kind := range []string{batch.OutputFile, batch.ErrorFile} {
		id, ok := strings.CutSuffix(f.Filename, "_"+kind+".jsonl")
		if !ok || batch.ResultFileID(id, kind) != f.ID {
			continue
		}
		b, err := s.ports.Batches.Get(ctx, f.Tenant, id)
		if errors.Is(err, batch.ErrNotFound) || err == nil && b.Status.Terminal() {
			return "", nil
		}
		return id, err
	}
	return "", nil
}

// resent reports whether an official client sends a request again because it saw
// no answer to it.
func resent(h http.Header) bool {
	n, err := strconv.Atoi(h.Get("X-Stainless-Retry-Count"))
	return err == nil && n > 0
}
