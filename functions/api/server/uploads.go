package server

import (
	"net/http"

	"holdfast/internal/openai"
	"holdfast/internal/upload"
)

func (s *Server) createUpload(w http.ResponseWriter, r *request) error {
	limit, err := s.fileBytes(r, s.settings.FileBytes)
	if err != nil {
		return err
	}
	in, err := openai.ParseCreateUpload(r.Body, limit)
	if err != nil {
		return err
	}
	u, err := s.ports.Uploads.Create(r.Context(), r.caller.Tenant, in, r.now)
	if err != nil {
		return err
	}
	return openai.WriteJSON(w, http.StatusOK, upload.ToWire(u, r.now))
}

// getUpload is our extension: how far an upload is, for whoever resumes it. It
// needs the uploader's scope and no more.
func (s *Server) getUpload(w http.ResponseWriter, r *request) error {
	u, err := s.ports.Uploads.Get(r.Context(), r.caller.Tenant, r.PathValue("id"), r.now)
	if err != nil {
		return err
	}
	return openai.WriteJSON(w, http.StatusOK, u)
}

// addPart looks for the upload before it reads the part, and stores the part once
// it has been read whole.
func (s *Server) addPart(w http.ResponseWriter, r *request) error {
	u, err := s.ports.Uploads.Pending(r.Context(), r.caller.Tenant, r.PathValue("id"), r.now)
	if err != nil {
		return err
	}
	data, err := openai.ReadPartForm(r.Request, s.settings.DirectBytes)
	if err != nil {
		return err
	}
	id, p, err := s.ports.Uploads.Add(r.Context(), u, data, r.now)
	if err != nil {
		return err
	}
	return openai.WriteJSON(w, http.StatusOK, openai.UploadPart{ID: id, CreatedAt: p.CreatedAt.Unix(), UploadID: u.ID})
}

// partURLs is our extension: where large parts go without passing through here.
func (s *Server) partURLs(w http.ResponseWriter, r *request) error {
	numbers, err := openai.ParsePartURLs(r.Body)
	if err != nil {
		return err
	}
	urls, err := s.ports.Uploads.URLs(r.Context(), r.caller.Tenant, r.PathValue("id"), numbers, r.now)
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store") // the URLs are credentials
	return openai.WriteJSON(w, http.StatusOK, openai.PartURLs{Data: urls})
}

func (s *Server) completeUpload(w http.ResponseWriter, r *request) error {
	in, err := openai.ParseCompleteUpload(r.Body)
	if err != nil {
		return err
	}
	u, err := s.ports.Uploads.Complete(r.Context(), r.caller.Tenant, r.PathValue("id"), in, r.now)
	if err != nil {
		return err
	}
	return openai.WriteJSON(w, http.StatusOK, upload.ToWire(u, r.now))
}

func (s *Server) cancelUpload(w http.ResponseWriter, r *request) error {
	u, err := s.ports.Uploads.Cancel(r.Context(), r.caller.Tenant, r.PathValue("id"), r.now)
	if err != nil {
		return err
	}
	return openai.WriteJSON(w, http.StatusOK, upload.ToWire(u, r.now))
}
