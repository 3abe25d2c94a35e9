// Package upload is the Uploads API: files too large for one request arrive in
// parts and become one file. It knows neither HTTP nor AWS.
//
// A part comes by one of two ways, and one upload is completed from one of them.
// A direct part passes through the API, so it is at most what a request carries;
// it is kept as an object of its own and recorded in the upload's item in the
// same write that checks that the upload is open. A presigned part goes straight
// to the store, as one piece of a multipart upload of the final object; the
// store's own list is the record of it.
//
// The upload's item decides everything. Its statuses, and what moves them:
//
//	pending    ── start ──>  completing    presigned only: the pieces are about to be used up
//	pending, completing ── settle ──>  settled    the object exists whole; which one is recorded
//	settled    ── finish ──>  completed    the file is recorded, the parts are gone
//	pending, completing ── cancel ──>  cancelled
//
// Start and settle record the hash of the part ids, so that only the same
// completion goes on from there; each step may be repeated, and completing again
// after a crash anywhere runs the same steps. Settle is the point of no return:
// cancel wins before it, complete after it. What a crash leaves (parts, an object
// that lost, a multipart upload) lies where a lifecycle rule removes it.
//
// An upload past its time is expired, whatever its item says, unless it was
// completing in time: then it may be completed for [Grace] longer.
package upload
