package openai

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	jsonx "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// The statuses of an upload.
const (
	UploadPending   = "pending"
	UploadCompleted = "completed"
	UploadCancelled = "cancelled"
	UploadExpired   = "expired"
)

// The bounds of an upload's parts.
const (
	MaxUploadParts = 10_000 // part ids that one completion may name, and the highest part number
	MaxPartURLs    = 100    // part URLs that one request may ask for
)

// maxUploadBytes bounds the JSON bodies of the Uploads API: 10,000 part ids stay
// well below it.
const maxUploadBytes = 1 << 20

// Upload is an upload object. CreatedAt and ExpiresAt are Unix seconds; File is
// null until the upload is completed. Parts is our extension: GET shows the parts
// that have arrived, no other answer does.
type Upload struct {
	ID        string        `json:"id"`
	Object    string        `json:"object"` // always written as "upload"
	Bytes     int64         `json:"bytes"`
	CreatedAt int64         `json:"created_at"`
	ExpiresAt int64         `json:"expires_at"`
	Filename  string        `json:"filename"`
	Purpose   string        `json:"purpose"`
	Status    string        `json:"status"`
	File      *File         `json:"file"`
	Parts     *[]UploadPart `json:"parts,omitempty"`
}

// MarshalJSON writes the upload with its fixed object name.
func (u Upload) MarshalJSON() ([]byte, error) {
	type plain Upload
	u.Object = "upload"
	return json.Marshal(plain(u))
}

// UploadPart is a part object. Number and Bytes are our extension: a part sent to
// a presigned URL has a number, and a listed part its size.
type UploadPart struct {
	ID        string `json:"id"`
	Object    string `json:"object"` // always written as "upload.part"
	CreatedAt int64  `json:"created_at"`
	UploadID  string `json:"upload_id"`
	Number    int    `json:"number,omitempty"`
	Bytes     int64  `json:"bytes,omitempty"`
}

// MarshalJSON writes the part with its fixed object name.
func (p UploadPart) MarshalJSON() ([]byte, error) {
	type plain UploadPart
	p.Object = "upload.part"
	return json.Marshal(plain(p))
}

// PartURL is where the bytes of one part go: a PUT to URL, without the API key,
// until ExpiresAt (Unix seconds). Our extension.
type PartURL struct {
	ID        string `json:"id"`
	Number    int    `json:"number"`
	URL       string `json:"url"`
	ExpiresAt int64  `json:"expires_at"`
}

// PartURLs answers POST /uploads/{id}/part_urls. It is no page: all that were
// asked for are in it, in the order asked.
type PartURLs struct {
	Object string    `json:"object"` // always written as "list"
	Data   []PartURL `json:"data"`
}

// MarshalJSON writes the list with its fixed object name and never a null for
// its data.
func (p PartURLs) MarshalJSON() ([]byte, error) {
	type plain PartURLs
	p.Object = "list"
	if p.Data == nil {
		p.Data = []PartURL{}
	}
	return json.Marshal(plain(p))
}

// CreateUpload is the request of POST /uploads. The MIME type is asked for by the
// contract and means nothing: what a batch reads is JSONL.
type CreateUpload struct {
	Filename     string        `json:"filename"`
	Purpose      string        `json:"purpose"`
	Bytes        int64         `json:"bytes"`
	MimeType     string        `json:"mime_type"`
	ExpiresAfter *ExpiresAfter `json:"expires_after,omitempty"`
}

// ParseCreateUpload reads and checks the body of POST /uploads for a file of at
// most limit bytes. Unknown fields are ignored; every error is an [*Error].
func ParseCreateUpload(r io.Reader, limit int64) (CreateUpload, error) {
	var raw struct {
		Filename     jsontext.Value `json:"filename"`
		Purpose      jsontext.Value `json:"purpose"`
		Bytes        jsontext.Value `json:"bytes"`
		MimeType     jsontext.Value `json:"mime_type"`
		ExpiresAfter jsontext.Value `json:"expires_after"`
	}
	var c CreateUpload
	if err := readUploadJSON(r, &raw); err != nil {
		return c, err
	}
	var err error
	if c.Filename, err = requiredText("filename", raw.Filename); err != nil {
		return c, err
	}
	if !utf8.ValidString(c.Filename) || utf8.RuneCountInString(c.Filename) > maxFilename {
		return c, Invalid("invalid_filename", "filename", "The filename must be valid UTF-8 of at most %d characters.", maxFilename)
	}
	if c.Purpose, err = requiredText("purpose", raw.Purpose); err != nil {
		return c, err
	}
	if c.Purpose != PurposeBatch {
		return c, InvalidPurpose(c.Purpose)
	}
	switch {
	case absent(raw.Bytes):
		return c, MissingParameter("bytes")
	case raw.Bytes.Kind() != '0':
		return c, InvalidType("bytes", "an integer")
	}
	if c.Bytes, err = strconv.ParseInt(string(raw.Bytes), 10, 64); err != nil || c.Bytes < 1 {
		return c, Invalid("invalid_bytes", "bytes", "Invalid bytes %s: it must be the size of the file, an integer of at least 1.", clip(raw.Bytes))
	}
	if c.Bytes > limit {
		e := FileTooLarge(limit)
		e.Param = "bytes"
		return c, e
	}
	if c.MimeType, err = requiredText("mime_type", raw.MimeType); err != nil {
		return c, err
	}
	if !absent(raw.ExpiresAfter) {
		if c.ExpiresAfter, err = parseExpiresAfter("expires_after", raw.ExpiresAfter); err != nil {
			return c, err
		}
	}
	return c, nil
}

// CompleteUpload is the request of POST /uploads/{id}/complete. MD5 is 32
// lower-case hex digits, or empty when none was given.
type CompleteUpload struct {
	PartIDs []string `json:"part_ids"`
	MD5     string   `json:"md5,omitempty"`
}

// ParseCompleteUpload reads and checks the body of a completion. Whether the parts
// exist, or one is named twice, is not looked at. Every error is an [*Error].
func ParseCompleteUpload(r io.Reader) (CompleteUpload, error) {
	var raw struct {
		PartIDs jsontext.Value `json:"part_ids"`
		MD5     jsontext.Value `json:"md5"`
	}
	var c CompleteUpload
	if err := readUploadJSON(r, &raw); err != nil {
		return c, err
	}
	if absent(raw.PartIDs) {
		return c, MissingParameter("part_ids")
	}
	var ids []jsontext.Value
	if raw.PartIDs.Kind() != '[' || jsonx.Unmarshal(raw.PartIDs, &ids) != nil {
		return c, InvalidType("part_ids", "an array of strings")
	}
	switch {
	case len(ids) == 0:
		return c, MissingParameter("part_ids")
	case len(ids) > MaxUploadParts:
		return c, Invalid("too_many_parts", "part_ids", "There are %d part_ids; the most is %d.", len(ids), MaxUploadParts)
	}
	for _, id := range ids {
		if id.Kind() != '"' {
			return c, InvalidType("part_ids", "an array of strings")
		}
		c.PartIDs = append(c.PartIDs, string(appendText(nil, id)))
	}
	if absent(raw.MD5) {
		return c, nil
	}
	if raw.MD5.Kind() != '"' {
		return c, InvalidType("md5", "a string")
	}
	sum := string(appendText(nil, raw.MD5))
	c.MD5 = strings.ToLower(sum)
	if len(c.MD5) != 32 || strings.Trim(c.MD5, "0123456789abcdef") != "" {
		return c, Invalid("invalid_md5", "md5", "Invalid md5 %s: it must be the 32 hex digits of the file's MD5.", clip(sum))
	}
	return c, nil
}

// ParsePartURLs reads the body of POST /uploads/{id}/part_urls: which part numbers
// URLs are wanted for. Every error is an [*Error].
func ParsePartURLs(r io.Reader) ([]int, error) {
	var raw struct {
		Numbers jsontext.Value `json:"part_numbers"`
	}
	if err := readUploadJSON(r, &raw); err != nil {
		return nil, err
	}
	const param = "part_numbers"
	if absent(raw.Numbers) {
		return nil, MissingParameter(param)
	}
	var values []jsontext.Value
	if raw.Numbers.Kind() != '[' || jsonx.Unmarshal(raw.Numbers, &values) != nil {
		return nil, InvalidType(param, "an array of integers")
	}
	switch {
	case len(values) == 0:
		return nil, MissingParameter(param)
	case len(values) > MaxPartURLs:
		return nil, Invalid("too_many_part_numbers", param, "There are %d part_numbers; one request may ask for %d.", len(values), MaxPartURLs)
	}
	numbers := make([]int, 0, len(values))
	for _, v := range values {
		n, err := strconv.Atoi(string(v))
		switch {
		case v.Kind() != '0':
			return nil, InvalidType(param, "an array of integers")
		case err != nil || n < 1 || n > MaxUploadParts:
			return nil, Invalid("invalid_part_number", param, "Invalid part number %s: parts are numbered from 1 to %d.", clip(v), MaxUploadParts)
		case slices.Contains(numbers, n):
			return nil, Invalid("duplicate_part_number", param, "The part number %d is there twice.", n)
		}
		numbers = append(numbers, n)
	}
	return numbers, nil
}

// readUploadJSON reads a JSON object of at most maxUploadBytes into raw.
func readUploadJSON(r io.Reader, raw any) error {
	body, err := io.ReadAll(io.LimitReader(r, maxUploadBytes+1))
	if err != nil {
		e := InvalidJSON("the request ended early")
		e.Err = err
		return e
	}
	if len(body) > maxUploadBytes {
		return RequestTooLarge(maxUploadBytes)
	}
	if err := jsonx.Unmarshal(body, raw); err != nil {
		return jsonError(body, err)
	}
	return nil
}

// requiredText reads a string that must be there and not empty.
func requiredText(name string, v jsontext.Value) (string, error) {
	if absent(v) {
		return "", MissingParameter(name)
	}
	if v.Kind() != '"' {
		return "", InvalidType(name, "a string")
	}
	s := string(appendText(nil, v))
	if s == "" {
		return "", MissingParameter(name)
	}
	return s, nil
}

// fieldData is the one field of a part's form.
const fieldData = "data"

// ReadPartForm reads the multipart form of POST /uploads/{id}/parts: the bytes of
// its field data, at most limit, as a file or as a plain field. Unknown fields are
// ignored. Every error is an [*Error].
func ReadPartForm(r *http.Request, limit int64) ([]byte, error) {
	parts, err := formParts(r, limit+maxFormExtra, PartTooLarge(limit))
	if err != nil {
		return nil, err
	}
	var data []byte
	seen := false
	for n := 0; ; n++ {
		part, err := parts.NextRawPart()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, partError(err, limit)
		}
		if n == maxFormParts {
			return nil, InvalidMultipart(fmt.Sprintf("it has more than %d parts", maxFormParts), nil)
		}
		if part.FormName() != fieldData {
			if _, err := io.Copy(io.Discard, part); err != nil {
				return nil, partError(err, limit)
			}
			continue
		}
		if seen {
			return nil, DuplicateParameter(fieldData)
		}
		seen = true
		if !plainEncoding(part) {
			return nil, InvalidMultipart("a Content-Transfer-Encoding is not supported", nil)
		}
		if data, err = io.ReadAll(&bounded{r: part, left: limit, over: PartTooLarge(limit)}); err != nil {
			return nil, partError(err, limit)
		}
	}
	switch {
	case !seen:
		return nil, MissingParameter(fieldData)
	case len(data) == 0:
		return nil, Invalid("empty_part", fieldData, "The part is empty: a part holds at least one byte.")
	}
	return data, nil
}

// partError is readError where what is too large is a part.
func partError(err error, limit int64) error {
	err = readError(err)
	if e, ok := err.(*Error); ok && e.Status == http.StatusRequestEntityTooLarge && e.Code != partTooLarge {
		return PartTooLarge(limit)
	}
	return err
}

const partTooLarge = "part_too_large"

// PartTooLarge is the 413 for a part above what one request can carry.
func PartTooLarge(limit int64) *Error {
	return refuse(http.StatusRequestEntityTooLarge, partTooLarge, fieldData,
		"The part is larger than the %d bytes that one request can take; send smaller parts, or ask POST /v1/uploads/{id}/part_urls for URLs that take parts of 5 MiB and more.", limit)
}

// UploadTooLargeForParts is the 413 for sending parts through the API for an
// upload above limit bytes.
func UploadTooLargeForParts(limit int64) *Error {
	return refuse(http.StatusRequestEntityTooLarge, "upload_too_large_for_direct_parts", "upload_id",
		"Parts sent to POST /v1/uploads/{id}/parts are joined up to %d bytes; ask POST /v1/uploads/{id}/part_urls for URLs and send the parts there.", limit)
}

// UploadClosed is the 400 for an upload that is no longer pending: status is what
// it is instead. It is no 409, because official clients repeat those.
func UploadClosed(id, status string) *Error {
	code := "upload_" + status
	switch status {
	case UploadCompleted:
		return Invalid(code, "upload_id", "The upload %s is completed; nothing about it changes any more.", clip(id))
	case UploadCancelled:
		return Invalid(code, "upload_id", "The upload %s is cancelled; create a new one.", clip(id))
	case UploadExpired:
		return Invalid(code, "upload_id", "The upload %s has expired; create a new one.", clip(id))
	}
	return Invalid("upload_completing", "upload_id", "The upload %s is being completed: nothing may be added to it, and only the same part_ids complete it.", clip(id))
}

// InvalidPart is the 400 for one of part_ids: reason completes "The part … ".
func InvalidPart(code, id, reason string) *Error {
	return Invalid(code, "part_ids", "The part %s %s.", clip(id), reason)
}
