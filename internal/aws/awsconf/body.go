package awsconf

import (
	"io"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// client sends requests whose bodies end quietly.
//
// The SDK closes a request's body as soon as the answer has begun, and net/http may
// not be through with it then: it asks it once more whether there is anything left.
// The SDK's own wrapper says io.EOF to Read, which is right, and io.EOF to WriteTo,
// which io.Copy takes for a failure; so the connection is cut while the answer is read,
// the call is repeated, and a conditional write that took effect looks like one that
// somebody else was faster with. On a busy machine that was one call in some ten
// thousand. smithy-go's issue, not AWS's; TestBodyThatWasClosed says when it is gone.
type client struct{ aws.HTTPClient }

// Do implements aws.HTTPClient.
func (c client) Do(r *http.Request) (*http.Response, error) {
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = body{r.Body}
	}
	return c.HTTPClient.Do(r)
}

// body is read, and has no WriteTo.
type body struct{ io.ReadCloser }
