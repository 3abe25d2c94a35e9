package server

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
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
	var data bytes.Buffer
	form, err := openai.ReadFileForm(r.Request, s.settings.DirectBytes, func(_, _ string, body io.Reader) error {
		_, err := data.ReadFrom(body)
		return err
	})
	if err != nil {
		return err
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
		return batch.File{}, openai.FileNotFound(id)
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

// getContent sends the client to the object itself: results are larger than
// what a function may answer.
func (s *Server) getContent(w http.ResponseWriter, r *request) error {
	f, err := s.file(r)
	if err != nil {
		return err
	}
	url, err := s.ports.Links.Presign(r.Context(), f.Object, f.Filename, "application/jsonl", linkTime)
	if err != nil {
		return fmt.Errorf("link to %s: %w", f.ID, err)
	}
	w.Header().Set("Location", url)
	w.Header().Set("Cache-Control", "no-store") // the URL is a credential
	w.Header().Set("Content-Length", "0")
	w.WriteHeader(http.StatusFound)
	return nil
}
