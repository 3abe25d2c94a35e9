package storetest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"holdfast/internal/batch"
)

// RunFiles runs the suite of batch.Files.
func RunFiles(t *testing.T, open func(T) batch.Files) {
	t.Helper()
	run(t, FilesCases(), open)
}

// FilesCases is the suite of batch.Files.
func FilesCases() []Case[batch.Files] {
	return slices.Concat([]Case[batch.Files]{
		{"put/a full record and a bare one come back", fileRoundTrip},
		{"put/an equal record is its own lost write", fileAgain},
		{"put/a taken id is refused, whatever differs", fileTaken},
		{"put/one of many wins", fileRace},
		{"get/unknown and foreign", fileUnknown},
		{"get/an expired one is still there", fileExpired},
		{"a context that is over", filesInterrupted},
	}, fileListCases, fileDeleteCases)
}

func fullFile() batch.File {
	return batch.File{
		Tenant: tenant(), ID: "file-" + unique(), Purpose: "batch_output", Filename: awkward, Object: fullObject(),
		CreatedAt: at(0), ExpiresAt: at(30 * 24 * time.Hour),
	}
}

func lookFile(t T, s batch.Files, f batch.File) batch.File {
	t.Helper()
	return value(s.Get(t.Context(), f.Tenant, f.ID))(t, "get file")
}

func fileRoundTrip(t T, s batch.Files) {
	bare := fullFile()
	bare = batch.File{Tenant: bare.Tenant, ID: bare.ID, CreatedAt: at(0)}
	for _, f := range []batch.File{fullFile(), bare} {
		succeeds(t, "put", s.Put(t.Context(), f))
		same(t, "stored", lookFile(t, s, f), f)
	}
}

func fileAgain(t T, s batch.Files) {
	for _, f := range []batch.File{fullFile(), {Tenant: tenant(), ID: "file-" + unique()}} {
		succeeds(t, "put", s.Put(t.Context(), f))
		succeeds(t, "put again", s.Put(t.Context(), f))
		f.CreatedAt, f.ExpiresAt = stored(f.CreatedAt), stored(f.ExpiresAt)
		succeeds(t, "put as it is stored", s.Put(t.Context(), f))
		same(t, "stored", lookFile(t, s, f), f)
	}
}

func fileTaken(t T, s batch.Files) {
	f := fullFile()
	succeeds(t, "put", s.Put(t.Context(), f))
	for name, change := range map[string]func(*batch.File){
		"purpose":    func(f *batch.File) { f.Purpose = "batch" },
		"filename":   func(f *batch.File) { f.Filename += " " },
		"bucket":     func(f *batch.File) { f.Object.Bucket = "other" },
		"key":        func(f *batch.File) { f.Object.Key = "other" },
		"version":    func(f *batch.File) { f.Object.Version = "" },
		"etag":       func(f *batch.File) { f.Object.ETag = `""` },
		"bytes":      func(f *batch.File) { f.Object.Bytes++ },
		"created_at": func(f *batch.File) { f.CreatedAt = f.CreatedAt.Add(time.Millisecond) },
		"expires_at": func(f *batch.File) { f.ExpiresAt = time.Time{} },
	} {
		other := f
		change(&other)
		refuses(t, "put with another "+name, s.Put(t.Context(), other), batch.ErrExists)
		same(t, "stored", lookFile(t, s, f), f)
	}
}

func fileRace(t T, s batch.Files) {
	f := fullFile()
	errs := race(racers, func(i int) error {
		mine := f
		mine.Filename = fmt.Sprint(i)
		return s.Put(t.Context(), mine)
	})
	f.Filename = fmt.Sprint(winner(t, errs, batch.ErrExists))
	same(t, "stored", lookFile(t, s, f), f)
}

func fileUnknown(t T, s batch.Files) {
	f := fullFile()
	succeeds(t, "put", s.Put(t.Context(), f))
	foreign := tenant()
	refuses(t, "unknown", fault(s.Get(t.Context(), f.Tenant, "file-none")), batch.ErrNotFound)
	refuses(t, "no id", fault(s.Get(t.Context(), f.Tenant, "")), batch.ErrNotFound)
	refuses(t, "another tenant's", fault(s.Get(t.Context(), foreign, f.ID)), batch.ErrNotFound)
	other := f
	other.Tenant, other.Filename = foreign, "other"
	succeeds(t, "put a namesake", s.Put(t.Context(), other))
	same(t, "stored", lookFile(t, s, f), f)
	same(t, "the namesake", lookFile(t, s, other), other)
}

func fileExpired(t T, s batch.Files) {
	f := fullFile()
	f.CreatedAt, f.ExpiresAt = at(-48*time.Hour), at(-24*time.Hour)
	succeeds(t, "put", s.Put(t.Context(), f))
	same(t, "stored", lookFile(t, s, f), f)
}

func filesInterrupted(t T, s batch.Files) {
	f, other := fullFile(), fullFile()
	succeeds(t, "put", s.Put(t.Context(), f))
	interrupts(t, map[string]func(context.Context) error{
		"Put": func(ctx context.Context) error { return s.Put(ctx, other) },
		"Get": func(ctx context.Context) error { return fault(s.Get(ctx, f.Tenant, f.ID)) },
		"List": func(ctx context.Context) error {
			_, _, err := s.List(ctx, f.Tenant, batch.FileQuery{Limit: 1}, at(0))
			return err
		},
		"Delete": func(ctx context.Context) error { return s.Delete(ctx, f.Tenant, f.ID, at(0)) },
	})
}
