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

// UpstreamWithheld is the 502 for a model's service whose answer is kept from clients, for
// the reason of code: CodeUpstreamDenied, as it is about a credential that isn't theirs, or
// quotes it, or CodeUpstreamRedirected.
func UpstreamWithheld(code string, cause error) *Error {
	return upstreamFault(http.StatusBadGateway, code, failureMessages[code], cause)
}

const (
	deniedMessage     = "The model's service refused the credential that this installation has for it, or quoted it; its operator has to look."
	redirectedMessage = "The model's service answered with a redirect, which is not followed; the operator of this installation has to look."
)

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
