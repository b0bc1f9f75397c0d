package api

// LabelsRequest is the body of PATCH /v1/sandboxes/{id}/labels and of PATCH
// /v1/snapshots/{tag}/labels. Labels in neither field stay.
type LabelsRequest struct {
	Set    map[string]string `json:"set,omitempty" doc:"Labels to add or to replace" maxProperties:"64"`
	Remove []string          `json:"remove,omitempty" doc:"Keys of labels to remove; missing ones are ignored" maxItems:"64"`
}
