package openai

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strings"
	"unicode/utf8"
)

// The bounds of a form beside its file.
const (
	maxFormParts  = 32       // parts, unknown ones included
	maxFieldBytes = 4 << 10  // bytes of a field that is read
	maxFormExtra  = 64 << 10 // bytes beside the file: headers, boundaries, fields
	maxFilename   = 255      // characters of a filename
)

// FileForm is the form of POST /files. Bytes is the size of the file that the
// sink was given.
type FileForm struct {
	Filename     string
	Purpose      string
	Bytes        int64
	ExpiresAfter *ExpiresAfter // nil when absent
}

// ReadFileForm reads the multipart form of POST /files as a stream. Fields may come
// in any order; sink is called once, when the file comes, with a body of at most
// limit bytes and the purpose if that was sent before (official clients send it
// behind). A purpose sent before is checked before. Sink must pass on the errors of
// body, which are those returned here; what it leaves unread is read past.
//
// The error is an [*Error] for whatever is wrong with the request, with the limit
// enforced while reading since no Content-Length can be trusted; and sink's own error
// otherwise. A form may turn out to be wrong after sink has stored the file: on any
// error, what it stored is the caller's to remove. Unknown fields are ignored; a
// known one that comes twice is refused.
func ReadFileForm(r *http.Request, limit int64, sink func(filename string, purposeSoFar string, body io.Reader) error) (FileForm, error) {
	parts, err := formParts(r, limit+maxFormExtra, FileTooLargeForDirectUpload(limit))
	if err != nil {
		return FileForm{}, err
	}
	f := formReader{limit: limit, sink: sink, seen: map[string]bool{}, fields: map[string]string{}}
	for n := 0; ; n++ {
		part, err := parts.NextRawPart()
		if err == io.EOF {
			return f.finish()
		}
		if err != nil {
			return FileForm{}, readError(err)
		}
		if n == maxFormParts {
			return FileForm{}, InvalidMultipart(fmt.Sprintf("it has more than %d parts", maxFormParts), nil)
		}
		if err := f.part(part); err != nil {
			return FileForm{}, err
		}
	}
}

// formParts opens a multipart form of at most total bytes; more of them is the
// error over.
func formParts(r *http.Request, total int64, over *Error) (*multipart.Reader, error) {
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case err != nil || kind != "multipart/form-data":
		return nil, InvalidMultipart("the Content-Type must be multipart/form-data", err)
	case params["boundary"] == "":
		return nil, InvalidMultipart("the Content-Type has no boundary", nil)
	case r.Body == nil:
		return nil, InvalidMultipart("the request has no body", nil)
	}
	// The standard reader takes a stream that ends among a part's headers for the end
	// of the form. So it never sees an end: behind the closing boundary it doesn't
	// look for one, and anywhere else it finds the error. The line end is for a
	// closing boundary that has none.
	endless := io.MultiReader(r.Body, strings.NewReader("\r\n"), truncated{})
	return multipart.NewReader(&bounded{r: endless, left: total, over: over}, params["boundary"]), nil
}

// plainEncoding reports whether a part's bytes are what it holds; decoding them
// would be a guess about bytes that must not change.
func plainEncoding(p *multipart.Part) bool {
	switch strings.ToLower(p.Header.Get("Content-Transfer-Encoding")) {
	case "", "binary", "8bit", "7bit":
		return true
	}
	return false
}

// truncated is the rest of a form that isn't over.
type truncated struct{}

func (truncated) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// bounded is a reader that fails with over behind its bound.
type bounded struct {
	r    io.Reader
	left int64
	over error
	read int64
	err  error // the first failure, other than io.EOF
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	// One byte more than is left is asked for, to tell "full" from "too much".
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.r.Read(p)
	if int64(n) > b.left {
		n, err = int(b.left), b.over
	}
	b.left -= int64(n)
	b.read += int64(n)
	if err != nil && err != io.EOF {
		b.err = err
	}
	return n, err
}

// readError words an error of reading the request.
func readError(err error) error {
	if _, ok := errors.AsType[*Error](err); ok {
		return err
	}
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return FileTooLargeForDirectUpload(tooLarge.Limit)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return InvalidMultipart("it ends before its closing boundary", err)
	}
	return InvalidMultipart("it is malformed or was cut off", err)
}

// formReader collects the parts of one form.
type formReader struct {
	limit  int64
	sink   func(filename, purposeSoFar string, body io.Reader) error
	form   FileForm
	seen   map[string]bool
	fields map[string]string
}

// The fields of the form.
const (
	fieldFile    = "file"
	fieldPurpose = "purpose"
	fieldAnchor  = "expires_after[anchor]"
	fieldSeconds = "expires_after[seconds]"
)

func (f *formReader) part(p *multipart.Part) error {
	name := p.FormName()
	switch name {
	case fieldFile, fieldPurpose, fieldAnchor, fieldSeconds:
	default:
		if _, err := io.Copy(io.Discard, p); err != nil {
			return readError(err)
		}
		return nil
	}
	if f.seen[name] {
		return DuplicateParameter(name)
	}
	f.seen[name] = true
	if !plainEncoding(p) {
		return InvalidMultipart("a Content-Transfer-Encoding is not supported", nil)
	}
	if name == fieldFile {
		return f.file(p)
	}
	value, err := io.ReadAll(io.LimitReader(p, maxFieldBytes+1))
	switch {
	case err != nil:
		return readError(err)
	case len(value) > maxFieldBytes:
		return InvalidMultipart(fmt.Sprintf("the field '%s' has more than %d bytes", name, maxFieldBytes), nil)
	}
	f.fields[name] = string(value)
	return nil
}

func (f *formReader) file(p *multipart.Part) error {
	name := p.FileName()
	switch {
	case name == "":
		return MissingParameter("filename")
	case !utf8.ValidString(name) || utf8.RuneCountInString(name) > maxFilename:
		return Invalid("invalid_filename", "filename", "The filename must be valid UTF-8 of at most %d characters.", maxFilename)
	}
	if f.seen[fieldPurpose] {
		if err := f.purpose(); err != nil {
			return err
		}
	}
	body := &bounded{r: p, left: f.limit, over: FileTooLargeForDirectUpload(f.limit)}
	err := f.sink(name, f.fields[fieldPurpose], body)
	if body.err != nil { // the cause of whatever the sink made of it
		return readError(body.err)
	}
	if err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, body); err != nil {
		return readError(err)
	}
	f.form.Filename, f.form.Bytes = name, body.read
	return nil
}

func (f *formReader) purpose() error {
	switch p := f.fields[fieldPurpose]; p {
	case "":
		return MissingParameter(fieldPurpose)
	case PurposeBatch:
		f.form.Purpose = p
		return nil
	default:
		return InvalidPurpose(p)
	}
}

// finish checks a form that was read to its end.
func (f *formReader) finish() (FileForm, error) {
	if !f.seen[fieldFile] {
		return FileForm{}, MissingParameter(fieldFile)
	}
	if err := f.purpose(); err != nil {
		return FileForm{}, err
	}
	if f.seen[fieldAnchor] || f.seen[fieldSeconds] {
		e, err := checkExpiresAfter("expires_after", f.fields[fieldAnchor], f.fields[fieldSeconds])
		if err != nil {
			return FileForm{}, err
		}
		f.form.ExpiresAfter = e
	}
	return f.form, nil
}
