package bench

import (
	"encoding/xml"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// FileStore is as much of S3 over HTTP as a finisher needs, on files: it holds
// nothing in memory, and completing an upload copies nothing, as S3's doesn't. It
// checks neither signatures nor checksums, and is no store for anything but
// measuring.
type FileStore struct {
	folder string

	mu      sync.Mutex
	begun   int                     // uploads
	uploads map[string]map[int]file // by id
	joined  map[string][]file       // objects that uploads became, by path
}

type file struct {
	path string
	etag string
	size int64
}

// NewFileStore returns a store whose objects are files below folder.
func NewFileStore(folder string) *FileStore {
	return &FileStore{folder: folder, uploads: map[string]map[int]file{}, joined: map[string][]file{}}
}

// Put stores an object without HTTP.
func (s *FileStore) Put(bucket, key string, body io.Reader) error {
	_, err := write(s.path("/"+bucket+"/"+key), body)
	return err
}

func (s *FileStore) path(url string) string {
	return filepath.Join(s.folder, strings.ReplaceAll(strings.Trim(url, "/"), "/", "+"))
}

func write(path string, body io.Reader) (file, error) {
	f, err := os.Create(path)
	if err != nil {
		return file{}, err
	}
	sum := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	n, err := io.Copy(f, io.TeeReader(body, sum))
	return file{path, fmt.Sprintf(`"%08x"`, sum.Sum32()), n}, errors.Join(err, f.Close())
}

// ServeHTTP answers one request.
func (s *FileStore) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := s.serve(w, r); err != nil {
		code := http.StatusInternalServerError
		name := "InternalError"
		if errors.Is(err, fs.ErrNotExist) {
			code, name = http.StatusNotFound, "NoSuchUpload"
			if !r.URL.Query().Has("uploadId") {
				name = "NoSuchKey"
			}
		}
		w.WriteHeader(code)
		fmt.Fprintf(w, "<Error><Code>%s</Code><Message>%v</Message></Error>", name, err)
	}
}

func (s *FileStore) serve(w http.ResponseWriter, r *http.Request) error {
	q, path := r.URL.Query(), s.path(r.URL.Path)
	switch {
	case q.Has("uploads"):
		s.mu.Lock()
		defer s.mu.Unlock()
		s.begun++
		id := strconv.Itoa(s.begun)
		s.uploads[id] = map[int]file{}
		return answer(w, "<InitiateMultipartUploadResult><UploadId>%s</UploadId></InitiateMultipartUploadResult>", id)
	case q.Has("delete"):
		return s.remove(w, r)
	case q.Has("uploadId"):
		return s.upload(w, r, q.Get("uploadId"), q.Get("partNumber"))
	case r.Method == http.MethodPut:
		f, err := write(path, r.Body)
		w.Header().Set("ETag", f.etag)
		return err
	default:
		return s.get(w, r, path)
	}
}

// get answers GET of a range, and HEAD.
func (s *FileStore) get(w http.ResponseWriter, r *http.Request, path string) error {
	s.mu.Lock()
	pieces, ok := s.joined[path]
	s.mu.Unlock()
	if ok && r.Method == http.MethodHead {
		var size int64
		for _, p := range pieces {
			size += p.size
		}
		w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
		w.Header().Set("ETag", `"joined"`)
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	w.Header().Set("ETag", `"file"`)
	http.ServeContent(w, r, "", info.ModTime(), f)
	return nil
}

// upload answers what is asked of an upload under way.
func (s *FileStore) upload(w http.ResponseWriter, r *http.Request, id, part string) error {
	if r.Method == http.MethodPut {
		n, err := strconv.Atoi(part)
		if err != nil {
			return err
		}
		f, err := write(filepath.Join(s.folder, "upload-"+id+"-"+part), r.Body)
		if err != nil {
			return err
		}
		w.Header().Set("ETag", f.etag)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.uploads[id] == nil {
			return fs.ErrNotExist
		}
		s.uploads[id][n] = f
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	pieces := s.uploads[id]
	if pieces == nil {
		return fs.ErrNotExist
	}
	switch r.Method {
	case http.MethodGet:
		after, _ := strconv.Atoi(r.URL.Query().Get("part-number-marker"))
		return list(w, pieces, after)
	case http.MethodDelete:
		delete(s.uploads, id)
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	var asked struct {
		Part []struct {
			PartNumber int
			ETag       string
		}
	}
	if err := xml.NewDecoder(r.Body).Decode(&asked); err != nil {
		return err
	}
	var joined []file
	for _, p := range asked.Part {
		if pieces[p.PartNumber].etag != p.ETag {
			return fmt.Errorf("piece %d is %s, not %s", p.PartNumber, pieces[p.PartNumber].etag, p.ETag)
		}
		joined = append(joined, pieces[p.PartNumber])
	}
	for _, old := range s.joined[s.path(r.URL.Path)] {
		_ = os.Remove(old.path) // it only takes room
	}
	s.joined[s.path(r.URL.Path)] = joined
	delete(s.uploads, id)
	return answer(w, `<CompleteMultipartUploadResult><ETag>"joined"</ETag></CompleteMultipartUploadResult>`)
}

// list answers pieces behind a number, 1,000 at a time.
func list(w http.ResponseWriter, pieces map[int]file, after int) error {
	var numbers []int
	for n := range pieces {
		if n > after {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	more := len(numbers) > 1000
	numbers = numbers[:min(len(numbers), 1000)]
	var b strings.Builder
	for _, n := range numbers {
		fmt.Fprintf(&b, "<Part><PartNumber>%d</PartNumber><ETag>%s</ETag><Size>%d</Size></Part>", n, pieces[n].etag, pieces[n].size)
		after = n
	}
	return answer(w, "<ListPartsResult><IsTruncated>%t</IsTruncated><NextPartNumberMarker>%d</NextPartNumberMarker>%s</ListPartsResult>", more, after, b.String())
}

// remove deletes objects.
func (s *FileStore) remove(w http.ResponseWriter, r *http.Request) error {
	var asked struct {
		Object []struct{ Key string }
	}
	if err := xml.NewDecoder(r.Body).Decode(&asked); err != nil {
		return err
	}
	for _, o := range asked.Object {
		_ = os.Remove(s.path(r.URL.Path + "/" + o.Key)) // an absent one is no error
	}
	return answer(w, "<DeleteResult></DeleteResult>")
}

func answer(w io.Writer, format string, args ...any) error {
	_, err := fmt.Fprintf(w, format, args...)
	return err
}
