package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"holdfast/internal/openai"
)

// saved is what a later call needs to go on with an upload: a small file in the
// user's cache folder, holdfast/uploads/<hash>.json. Its name stands for the API,
// the key, and the file's path, size, time of change and first bytes, so that
// another file, another tenant or a changed file never meets it. It holds no key
// and no URL, and losing it costs sending the file again.
type saved struct {
	name string // "" where there is no place for it
	info os.FileInfo
	file bool // an earlier call made a file of it

	V         int    `json:"v"`
	Upload    string `json:"upload_id"`
	PartBytes int64  `json:"part_bytes"`
}

// firstBytes is how much of the file counts for the name.
const firstBytes = 64 << 10

// savedUpload finds what an earlier call saved about this file, or nothing.
func (a *app) savedUpload(c *client, f *os.File, path string, size int64) *saved {
	s := &saved{V: 1}
	folder, err := a.cache()
	full, absErr := filepath.Abs(path)
	info, statErr := f.Stat()
	if err != nil || absErr != nil || statErr != nil {
		return s
	}
	s.info = info
	name := sha256.New()
	fmt.Fprintf(name, "%s\x00%x\x00%s\x00%d\x00%d\x00", c.base, sha256.Sum256([]byte(c.key)), full, size, info.ModTime().UnixNano())
	if _, err := io.Copy(name, io.NewSectionReader(f, 0, min(size, firstBytes))); err != nil {
		return s
	}
	s.name = filepath.Join(folder, "holdfast", "uploads", hex.EncodeToString(name.Sum(nil))+".json")
	raw, err := os.ReadFile(s.name)
	found := *s
	if err == nil && json.Unmarshal(raw, &found) == nil && found.V == s.V && found.PartBytes >= leastPart {
		return &found
	}
	return s
}

// save writes the state in one step: a half of it would be worse than none.
func (s *saved) save() error {
	if s.name == "" {
		return errors.New("there is no cache folder")
	}
	raw, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(s.name), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(s.name), "new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(raw)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), s.name)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(f.Name()))
	}
	return err
}

// whole reports whether an earlier call had sent it all.
func (s *saved) whole() bool { return s != nil && s.file }

// forget removes the state.
func (s *saved) forget() {
	if s != nil && s.name != "" {
		_ = os.Remove(s.name) // what stays is looked up once more, in vain
	}
}

// resume asks how far the saved upload is. One that is gone, cancelled or expired
// is forgotten: the answer is empty.
func (s *saved) resume(ctx context.Context, c *client) (openai.Upload, error) {
	var u openai.Upload
	if s.Upload == "" {
		return u, nil
	}
	err := c.get(ctx, "/v1/uploads/"+s.Upload, &u)
	e, ours := errors.AsType[*apiError](err)
	switch {
	case ours && e.Status == http.StatusNotFound:
	case err != nil:
		return u, err
	case u.Status == openai.UploadPending, u.Status == openai.UploadCompleted && u.File != nil:
		return u, nil
	}
	s.forget()
	s.Upload = ""
	return openai.Upload{}, nil
}

// unchanged makes sure that the file is still the one whose parts were sent.
func (s *saved) unchanged(f *os.File) error {
	info, err := f.Stat()
	if err != nil || s.info == nil {
		return err
	}
	if info.Size() != s.info.Size() || !info.ModTime().Equal(s.info.ModTime()) {
		return failed("Submit it again once nothing writes to it.", nil, "can't submit %s: it changed while it was uploaded", f.Name())
	}
	return nil
}

// cancel drops an upload that nothing will come of. If that fails it expires.
func (s *saved) cancel(ctx context.Context, c *client) {
	s.forget()
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer stop()
	_ = c.post(ctx, "/v1/uploads/"+s.Upload+"/cancel", "application/json", http.NoBody, 0, new(openai.Upload))
}
