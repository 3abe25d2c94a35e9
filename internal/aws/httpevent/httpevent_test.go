package httpevent

import (
	"io"
	"testing"
)

// What a client may send and an event may hold, as net/http would have it.
func TestRequest(t *testing.T) {
	r := Request(t.Context(), Event{
		Method: "POST", Host: "api.example", Path: "a%b/../ü", Query: "x=%zz&y=1", Header: map[string]string{"x-list": "1, 2", "content-type": "a/b"},
		Cookies: []string{"a=1", "b=2"}, Body: "aGk=", Base64: true, SourceAddress: "192.0.2.1",
	})
	body, err := io.ReadAll(r.Body)
	if r.Method != "POST" || r.Host != "api.example" || r.URL.Path != "/a%b/../ü" || r.URL.RawQuery != "x=%zz&y=1" || r.RemoteAddr != "192.0.2.1" ||
		len(r.Header.Values("X-List")) != 1 || r.Header.Get("X-List") != "1, 2" || r.Header.Get("Content-Type") != "a/b" || r.Header.Get("Cookie") != "a=1; b=2" ||
		r.ContentLength != 2 || string(body) != "hi" || err != nil {
		t.Errorf("%+v, %q, %v", r, body, err)
	}
	r = Request(t.Context(), Event{Path: "/a", Body: "not base64!", Base64: true})
	if body, err := io.ReadAll(r.Body); err == nil {
		t.Errorf("a body that is none was read: %q", body)
	}
	r = Request(t.Context(), Event{})
	if body, err := io.ReadAll(r.Body); r.URL.Path != "/" || r.Header == nil || r.ContentLength != 0 || len(body) != 0 || err != nil {
		t.Errorf("nothing: %+v, %q, %v", r, body, err)
	}
}
