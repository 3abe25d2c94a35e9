package openai

import (
	"fmt"
	"net/http"
)

// ReplayNotAuthorized is the 403 for whatever a key with batch_replay may not do,
// which is not told apart: not its headers, nor whether there is such a batch, nor
// how it stands.
func ReplayNotAuthorized() *Error {
	return refuse(http.StatusForbidden, "batch_replay_not_authorized", "",
		"This API key acts for a tenant only with the X-Tenant-ID and X-Batch-ID of a batch of that tenant that is in progress.")
}

// TenantNotAuthorized is the 403 for an X-Tenant-ID that isn't the key's own tenant.
func TenantNotAuthorized() *Error {
	return refuse(http.StatusForbidden, "tenant_not_authorized", "", "This API key may not act for the tenant in X-Tenant-ID; leave the header out.")
}

// UpstreamUnreachable is the 502 for a model's service that gave no reply; cause is
// for the log.
func UpstreamUnreachable(cause error) *Error {
	return upstreamFault(http.StatusBadGateway, CodeUpstreamUnreachable, "The model's service can't be reached; please retry.", cause)
}

// UpstreamDenied is the 502 for a model's service that doesn't take our credential.
// What it said is kept from clients: it is about a secret that isn't theirs.
func UpstreamDenied(cause error) *Error {
	return upstreamFault(http.StatusBadGateway, "upstream_denied",
		"The model's service refused the credential that this installation has for it; its operator has to look.", cause)
}

// UpstreamTimeout is the 504 for a model's service that gave no reply in time.
func UpstreamTimeout(cause error) *Error {
	return upstreamFault(http.StatusGatewayTimeout, CodeRequestTimeout, "The model's service gave no reply in time; please retry.", cause)
}

// UpstreamTooLarge is the 502 for a reply above the bound of bytes.
func UpstreamTooLarge(limit int64) *Error {
	return upstreamFault(http.StatusBadGateway, CodeResponseTooLarge,
		fmt.Sprintf("The model's reply is larger than the %d bytes that this installation passes on.", limit), nil)
}

func upstreamFault(status int, code, message string, cause error) *Error {
	return &Error{Status: status, Type: TypeServer, Code: code, Message: message, Err: cause}
}
