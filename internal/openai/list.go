package openai

import (
	"encoding/json"
	"net/http"
)

// WriteList answers with the page that holds data, cut so that its JSON has at
// most limit bytes: a client then finds has_more and comes again. One object is
// always left, however large: clients stop at an empty page.
func WriteList[T Identified](w http.ResponseWriter, data []T, hasMore bool, limit int) error {
	body, err := json.Marshal(NewList(data, hasMore))
	if err == nil && len(body) > limit && len(data) > 1 {
		data, err = fitting(data, limit)
		if err == nil {
			body, err = json.Marshal(NewList(data, true))
		}
	}
	if err != nil {
		WriteError(w, Internal(err))
		return err
	}
	return writeBody(w, http.StatusOK, body)
}

// fitting is as much of data as a page of limit bytes has room for.
func fitting[T Identified](data []T, limit int) ([]T, error) {
	const frame = 1 << 10 // what is around the objects, with two ids
	size := frame
	for i, v := range data {
		b, err := json.Marshal(v)
		if err != nil {
			return nil, err
		}
		if size += len(b) + 1; size > limit {
			return data[:max(i, 1)], nil
		}
	}
	return data, nil
}
