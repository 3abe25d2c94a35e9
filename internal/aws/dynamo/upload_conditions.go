package dynamo

import (
	"time"

	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/expression"

	"holdfast/internal/batch"
	"holdfast/internal/upload"
)

// The writes of an upload's item, which have no number in the design's table:
// each names the status that it leaves. As in conditions.go.

func insertUpload() expression.ConditionBuilder { return absent() }

// addUploadPart records a part in the item itself, so that "is it still open"
// and "it has one part more" are one write:
//
//  1. A part's bytes are stored; the upload is completed from the others.
//  2. The part is recorded: it would be answered as part of a file it isn't in.
func addUploadPart(id string, p uploadPart, most int) write {
	return write{
		when: is("status", upload.Pending).
			And(name("parts." + id).AttributeNotExists()).
			And(expression.Size(name("parts")).LessThan(value(most))),
		then: next().Set(name("parts."+id), value(p)),
	}
}

// beginUpload records the multipart upload that every presigned part goes to.
// There is one: parts spread over two could never be joined.
func beginUpload(multipart string) write {
	return write{
		when: is("status", upload.Pending).And(name("multipart").AttributeNotExists()),
		then: next().Set(name("multipart"), value(multipart)),
	}
}

// cancelUpload is refused once the upload is settled:
//
//  1. A completion settles; its file is recorded.
//  2. A cancel deletes the parts and the object: the file would have no bytes.
func cancelUpload() write {
	return write{
		when: name("status").In(value(upload.Pending), value(upload.Completing)),
		then: notDue(next()).Set(name("status"), value(upload.Cancelled)),
	}
}

// startUpload closes the upload to everything but this completion, before the
// store's pieces are used up.
func startUpload(hash string) write {
	return write{
		when: is("status", upload.Pending),
		then: next().Set(name("status"), value(upload.Completing)).Set(name("parts_hash"), value(hash)),
	}
}

// settleUpload names the object that is the file. Two completions at once have
// two objects; the second finds the status moved.
func settleUpload(hash string, o batch.Object, md5 string, now time.Time) write {
	return write{
		when: name("status").In(value(upload.Pending), value(upload.Completing)).
			And(name("parts_hash").AttributeNotExists().Or(is("parts_hash", hash))),
		then: next().
			Set(name("status"), value(upload.Settled)).
			Set(name("parts_hash"), value(hash)).
			Set(name("object"), value(objectItem(o))).
			Set(name("md5"), value(md5)).
			Set(name("settled_at"), value(millis(now))),
	}
}

// finishUpload says that the file is recorded and the parts are gone.
func finishUpload() write {
	return write{
		when: is("status", upload.Settled),
		then: notDue(next()).Set(name("status"), value(upload.Completed)),
	}
}
