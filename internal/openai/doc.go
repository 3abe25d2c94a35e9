// Package openai is the HTTP contract of OpenAI's Batch and Files API, as far
// as it can be spoken without any I/O of its own: the objects on the wire, the
// error bodies and their headers, paging, the multipart form of a file upload,
// the strict reading of a batch's input file and the writing of its result
// files. It knows nothing of AWS, of tenants or of how a batch is run.
//
// # Reading an input file
//
// [Reader] cuts a file, or a part of one, into lines without ever holding more
// than one of them, and [RawLine.Parse] (or [ParseLine]) decides whether a line
// is a request. Both say what is wrong as a [*LineError], which carries the code
// of the contract, the line number and the byte; reading goes on behind a bad
// line, so that a person sees every mistake at once. [IDSet] finds a custom_id
// that was used before, for about 16 bytes a line.
//
// Nothing of a request is ever rewritten. Body and custom_id are handed out as
// slices of the line, so that numbers, key order, escapes and lone surrogates
// reach the model, and the id reaches the result file, byte for byte.
//
// Decisions where the contract leaves room:
//   - Unknown members of a line are ignored, up to 100, as unknown request fields are.
//     No member of a line may occur twice, known or not; inside a body only "model"
//     and "stream", which Holdfast itself reads, are held to that.
//   - Nesting is counted below a request's own two objects (the line and its
//     body): 1,000 levels pass, 1,001 are invalid_json_line. A member beside body
//     has one level more.
//   - A lone surrogate escape in a custom_id is accepted and echoed.
//   - stream may be false, null or anything that isn't true: what a model makes
//     of "stream":"yes" is the model's to say.
//   - A blank line consists of ASCII white space only. One that is longer than
//     the line limit is line_too_large.
//
// # Writing results
//
// [ResultLine] is one line of an output or error file. Replies are compacted, to
// keep them on one physical line, and otherwise not touched.
//
// # Answering
//
// Every refusal is an [*Error], made by a constructor that fixes its status,
// code and headers; [WriteError] is the only writer of error bodies. Whatever is
// not an *Error becomes a 500 with a fixed text, so that no inner message leaks.
package openai
