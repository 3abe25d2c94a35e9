package dynamo

import "holdfast/internal/batch"

// progressItem is a finisher's progress, one attribute of META.
type progressItem struct {
	Step     int64            `dynamodbav:"step"`
	Line     int64            `dynamodbav:"line"`
	Part     string           `dynamodbav:"part,omitempty"`
	Piece    int64            `dynamodbav:"piece"`
	Output   fileProgressItem `dynamodbav:"output"`
	Errors   fileProgressItem `dynamodbav:"errors"`
	Receipts fileProgressItem `dynamodbav:"receipts"`
	Counts   countsItem       `dynamodbav:"counts"`
	Usage    usageItem        `dynamodbav:"usage"`
}

type fileProgressItem struct {
	Upload string `dynamodbav:"upload,omitempty"`
	Pieces int    `dynamodbav:"pieces"`
	Bytes  int64  `dynamodbav:"bytes"`
	Tail   string `dynamodbav:"tail,omitempty"`
}

func newProgressItem(p batch.Progress) *progressItem {
	return &progressItem{
		Step: p.Step, Line: p.Line, Part: p.Part, Piece: p.Piece,
		Output: fileProgressItem(p.Output), Errors: fileProgressItem(p.Errors), Receipts: fileProgressItem(p.Receipts),
		Counts: countsItem(p.Counts), Usage: newUsageItem(p.Usage),
	}
}

func (i progressItem) progress() batch.Progress {
	return batch.Progress{
		Step: i.Step, Line: i.Line, Part: i.Part, Piece: i.Piece,
		Output: batch.FileProgress(i.Output), Errors: batch.FileProgress(i.Errors), Receipts: batch.FileProgress(i.Receipts),
		Counts: batch.Counts(i.Counts), Usage: i.Usage.usage(),
	}
}
