package openai

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
)

const boundary = "xyz"

// formPart is one part of a form, as raw header and content.
func formPart(header, content string) string {
	return "--" + boundary + "\r\nContent-Disposition: form-data; " + header + "\r\n\r\n" + content + "\r\n"
}

func formOf(parts ...string) string { return strings.Join(parts, "") + "--" + boundary + "--\r\n" }

func fileOf(content string) string {
	return "--" + boundary + "\r\nContent-Disposition: form-data; name=\"file\"; filename=\"in.jsonl\"\r\nContent-Type: application/octet-stream\r\n\r\n" + content + "\r\n"
}

func field(name, value string) string { return formPart(`name="`+name+`"`, value) }

func formRequest(body io.Reader) *http.Request {
	r := httptest.NewRequest("POST", "/v1/files", body)
	r.Header.Set("Content-Type", "multipart/form-data; boundary="+boundary)
	return r
}

func TestReadFileForm(t *testing.T) {
	const limit = 1000
	anchor, seconds := field("expires_after[anchor]", "created_at"), field("expires_after[seconds]", "3600")
	purpose := field("purpose", "batch")
	tests := []struct {
		name, body  string
		status      int
		code, param string
		file        string // what the sink must have got, where the form is right
	}{
		{"as the clients send it", formOf(fileOf("a\n"), purpose, anchor, seconds), 0, "", "", "a\n"},
		{"in another order", formOf(seconds, purpose, anchor, fileOf("a\n")), 0, "", "", "a\n"},
		{"without expiry", formOf(fileOf("a\n"), purpose), 0, "", "", "a\n"},
		{"an empty file", formOf(fileOf(""), purpose), 0, "", "", ""},
		{"any bytes", formOf(fileOf("\xff\x00\r\n--xy\r\n\n"), purpose), 0, "", "", "\xff\x00\r\n--xy\r\n\n"},
		{"exactly the limit", formOf(fileOf(strings.Repeat("x", limit)), purpose), 0, "", "", strings.Repeat("x", limit)},
		{"unknown fields", formOf(field("x", strings.Repeat("x", 10_000)), fileOf("a"), field("x", ""), formPart(`name="y"; filename="y"`, "y"), purpose), 0, "", "", "a"},
		{"a preamble", "hello\r\n" + formOf(fileOf("a"), purpose), 0, "", "", "a"},

		{"above the limit", formOf(fileOf(strings.Repeat("x", limit+1)), purpose), 413, "file_too_large_for_direct_upload", "file", ""},
		{"far above the limit", formOf(fileOf(strings.Repeat("x", 1_000_000)), purpose), 413, "file_too_large_for_direct_upload", "file", ""},
		{"much beside the file", formOf(field("x", strings.Repeat("x", 1_000_000)), fileOf("a"), purpose), 413, "file_too_large_for_direct_upload", "file", ""},
		{"an endless preamble", strings.Repeat("hello\r\n", 100_000), 413, "file_too_large_for_direct_upload", "file", ""},
		{"no file", formOf(purpose), 400, "missing_required_parameter", "file", ""},
		{"no parts", formOf(), 400, "missing_required_parameter", "file", ""},
		{"no filename", formOf(formPart(`name="file"`, "a"), purpose), 400, "missing_required_parameter", "filename", ""},
		{"an empty filename", formOf(formPart(`name="file"; filename=""`, "a"), purpose), 400, "missing_required_parameter", "filename", ""},
		{"a long filename", formOf(formPart(`name="file"; filename="`+strings.Repeat("x", 256)+`"`, "a"), purpose), 400, "invalid_filename", "filename", ""},
		{"no purpose", formOf(fileOf("a")), 400, "missing_required_parameter", "purpose", ""},
		{"an empty purpose", formOf(fileOf("a"), field("purpose", "")), 400, "missing_required_parameter", "purpose", ""},
		{"another purpose", formOf(fileOf("a"), field("purpose", "fine-tune")), 400, "invalid_purpose", "purpose", ""},
		{"another purpose first", formOf(field("purpose", "fine-tune"), fileOf("a")), 400, "invalid_purpose", "purpose", ""},
		{"two files", formOf(fileOf("a"), fileOf("b"), purpose), 400, "duplicate_parameter", "file", ""},
		{"two purposes", formOf(fileOf("a"), purpose, purpose), 400, "duplicate_parameter", "purpose", ""},
		{"a long purpose", formOf(fileOf("a"), field("purpose", strings.Repeat("x", 5000))), 400, "invalid_multipart", "", ""},
		{"anchor alone", formOf(fileOf("a"), purpose, anchor), 400, "invalid_expires_after", "expires_after", ""},
		{"seconds alone", formOf(fileOf("a"), purpose, seconds), 400, "invalid_expires_after", "expires_after", ""},
		{"too short", formOf(fileOf("a"), purpose, anchor, field("expires_after[seconds]", "3599")), 400, "invalid_expires_after", "expires_after", ""},
		{"too long", formOf(fileOf("a"), purpose, anchor, field("expires_after[seconds]", "2592001")), 400, "invalid_expires_after", "expires_after", ""},
		{"no number", formOf(fileOf("a"), purpose, anchor, field("expires_after[seconds]", "1h")), 400, "invalid_expires_after", "expires_after", ""},
		{"another anchor", formOf(fileOf("a"), purpose, field("expires_after[anchor]", "now"), seconds), 400, "invalid_expires_after", "expires_after", ""},
		{"many parts", formOf(strings.Repeat(field("x", "y"), 40)), 400, "invalid_multipart", "", ""},
		{"encoded", formOf("--"+boundary+"\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\nContent-Transfer-Encoding: base64\r\n\r\nYQ==\r\n", purpose), 400, "invalid_multipart", "", ""},
		{"nothing", "", 400, "invalid_multipart", "", ""},
		{"no form", "{}", 400, "invalid_multipart", "", ""},
		{"a malformed header", "--" + boundary + "\r\nhello\r\n\r\na\r\n", 400, "invalid_multipart", "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for name, wrap := range chunkings {
				var got bytes.Buffer
				calls := 0
				form, err := ReadFileForm(formRequest(wrap(strings.NewReader(tt.body))), limit, func(filename, purpose string, body io.Reader) error {
					calls++
					_, err := got.ReadFrom(body)
					if got.Len() > limit {
						t.Errorf("the sink got %d bytes", got.Len())
					}
					return err
				})
				checkRefusal(t, name, err, tt.status, tt.code, tt.param)
				if err != nil {
					if form != (FileForm{}) {
						t.Errorf("%s: a form with an error: %+v", name, form)
					}
					continue
				}
				if calls != 1 || got.String() != tt.file || form.Bytes != int64(len(tt.file)) || form.Filename == "" || form.Purpose != "batch" {
					t.Errorf("%s: %d calls, %q, %+v", name, calls, got.String(), form)
				}
				if want := strings.Contains(tt.body, "3600"); (form.ExpiresAfter != nil) != want {
					t.Errorf("%s: expiry %+v", name, form.ExpiresAfter)
				}
			}
		})
	}
}

// A body cut anywhere is refused, never taken for a whole one.
func TestReadFileFormTruncated(t *testing.T) {
	whole := formOf(fileOf("line 1\nline 2\n"), field("purpose", "batch"), field("x", "y"))
	end := strings.LastIndex(whole, "--") + 2 // behind the closing boundary
	for n := range end {
		_, err := ReadFileForm(formRequest(strings.NewReader(whole[:n])), 1000, func(_, _ string, body io.Reader) error {
			_, err := io.Copy(io.Discard, body)
			return err
		})
		checkRefusal(t, fmt.Sprintf("cut at %d", n), err, 400, "invalid_multipart", "")
	}
	torn := io.MultiReader(strings.NewReader(whole[:strings.Index(whole, "line 2")]), iotest.ErrReader(errors.New("connection reset by secret")))
	_, err := ReadFileForm(formRequest(torn), 1000, func(_, _ string, body io.Reader) error {
		_, _ = io.Copy(io.Discard, body)
		return errors.New("the sink words it otherwise")
	})
	checkRefusal(t, "torn", err, 400, "invalid_multipart", "")
	if e, ok := errors.AsType[*Error](err); ok && strings.Contains(e.Message, "secret") {
		t.Errorf("the cause leaked: %s", e.Message)
	}
}

func TestReadFileFormSink(t *testing.T) {
	body := formOf(field("purpose", "batch"), fileOf(strings.Repeat("x", 500)), field("expires_after[anchor]", "created_at"))
	full := errors.New("the store is full")
	_, err := ReadFileForm(formRequest(strings.NewReader(body)), 1000, func(filename, purpose string, _ io.Reader) error {
		if filename != "in.jsonl" || purpose != "batch" {
			t.Errorf("got %s, %s", filename, purpose)
		}
		return full
	})
	if !errors.Is(err, full) {
		t.Errorf("got %v", err)
	}
	body = formOf(fileOf(strings.Repeat("x", 500)), field("purpose", "batch"))
	form, err := ReadFileForm(formRequest(strings.NewReader(body)), 1000, func(_, purpose string, _ io.Reader) error {
		if purpose != "" {
			t.Errorf("the purpose %s came too early", purpose)
		}
		return nil
	})
	if err != nil || form.Bytes != 500 {
		t.Errorf("what the sink left: %+v, %v", form, err)
	}
	// The limit holds for what the sink leaves, too.
	_, err = ReadFileForm(formRequest(strings.NewReader(body)), 499, func(string, string, io.Reader) error { return nil })
	checkRefusal(t, "unread", err, 413, "file_too_large_for_direct_upload", "file")
}

func TestReadFileFormContentType(t *testing.T) {
	for _, kind := range []string{"", "application/json", "multipart/form-data", "multipart/mixed; boundary=xyz", "multipart/form-data; boundary", ";"} {
		r := formRequest(strings.NewReader(formOf()))
		r.Header.Set("Content-Type", kind)
		_, err := ReadFileForm(r, 10, nil)
		checkRefusal(t, kind, err, 400, "invalid_multipart", "")
	}
	r := formRequest(nil)
	r.Body = nil
	_, err := ReadFileForm(r, 10, nil)
	checkRefusal(t, "no body", err, 400, "invalid_multipart", "")
	r = formRequest(strings.NewReader(formOf(fileOf(strings.Repeat("x", 500)))))
	r.Body = http.MaxBytesReader(httptest.NewRecorder(), r.Body, 300)
	_, err = ReadFileForm(r, 1000, func(_, _ string, body io.Reader) error { _, err := io.Copy(io.Discard, body); return err })
	checkRefusal(t, "the server's own bound", err, 413, "file_too_large_for_direct_upload", "file")
}

// FuzzReadFileForm holds that no form panics, that every error of the request is
// worded, and that what is accepted is what the standard library reads.
func FuzzReadFileForm(f *testing.F) {
	for _, s := range []string{
		formOf(fileOf("a\n"), field("purpose", "batch"), field("expires_after[anchor]", "created_at"), field("expires_after[seconds]", "3600")),
		formOf(field("purpose", "batch"), fileOf("\r\n--xy")), formOf(fileOf("a")), formOf(), "", "--xyz", "--xyz--", "--xyz\r\n\r\n", formOf(fileOf("a"), fileOf("b")),
		formOf(formPart(`name=file; filename*=UTF-8''%e2%82%ac`, "a"), field("purpose", "batch")),
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var file bytes.Buffer
		form, err := ReadFileForm(formRequest(bytes.NewReader(body)), 200, func(_, _ string, r io.Reader) error {
			_, err := file.ReadFrom(r)
			return err
		})
		if file.Len() > 200 {
			t.Fatalf("the sink got %d bytes", file.Len())
		}
		if err != nil {
			if e, ok := errors.AsType[*Error](err); !ok || e.Status < 400 || e.Status >= 500 || e.Code == "" || e.Message == "" {
				t.Fatalf("got %v", err)
			}
			return
		}
		std, err := multipart.NewReader(bytes.NewReader(body), boundary).ReadForm(1 << 20)
		if err != nil {
			t.Fatalf("accepted, but %v", err)
		}
		if len(std.File["file"]) != 1 || std.File["file"][0].Filename != form.Filename || std.File["file"][0].Size != form.Bytes || form.Bytes != int64(file.Len()) || std.Value["purpose"][0] != form.Purpose {
			t.Fatalf("got %+v", form)
		}
	})
}
