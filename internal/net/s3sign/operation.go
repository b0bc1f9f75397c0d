package s3sign

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// operation is a kind of request that may be signed.
type operation struct {
	method string
	object bool // it is for an object, not for a bucket
	// must are the query parameters by which servers know the operation, may the further ones.
	must, may []string
	write     bool
	// list is set if the parameter prefix selects the objects.
	list bool
	// whole is set if all objects of the bucket are concerned, whatever their prefix.
	whole bool
	// copies is set if the object may be copied from another one.
	copies bool
}

var (
	lists    = []string{"delimiter", "encoding-type", "prefix"}
	versions = []string{"versionId"}
	reads    = []string{
		"partNumber", "response-cache-control", "response-content-disposition", "response-content-encoding",
		"response-content-language", "response-content-type", "response-expires", "versionId",
	}
)

// operations are all that may be signed. Absent are those for access rights, locks, sessions, the creation of buckets
// and forms. An operation with more parameters in must comes before one with fewer.
var operations = []operation{
	{method: http.MethodGet, must: []string{"location"}},
	{method: http.MethodGet, must: []string{"versioning"}},
	{method: http.MethodGet, must: []string{"uploads"}, list: true,
		may: append([]string{"key-marker", "max-uploads", "upload-id-marker"}, lists...)},
	{method: http.MethodGet, must: []string{"versions"}, list: true,
		may: append([]string{"key-marker", "max-keys", "version-id-marker"}, lists...)},
	{method: http.MethodGet, list: true, may: append([]string{"continuation-token", "fetch-owner", "list-type", "marker",
		"max-keys", "metadata", "start-after"}, lists...)},
	{method: http.MethodHead},
	{method: http.MethodPost, must: []string{"delete"}, write: true, whole: true},

	{method: http.MethodGet, object: true, must: []string{"uploadId"}, may: []string{"max-parts", "part-number-marker"}},
	{method: http.MethodGet, object: true, must: []string{"tagging"}, may: versions},
	{method: http.MethodGet, object: true, must: []string{"attributes"}, may: versions},
	{method: http.MethodGet, object: true, may: reads},
	{method: http.MethodHead, object: true, may: reads},
	{method: http.MethodPut, object: true, must: []string{"partNumber", "uploadId"}, write: true, copies: true},
	{method: http.MethodPut, object: true, must: []string{"tagging"}, may: versions, write: true},
	{method: http.MethodPut, object: true, write: true, copies: true},
	{method: http.MethodPost, object: true, must: []string{"uploads"}, write: true},
	{method: http.MethodPost, object: true, must: []string{"uploadId"}, write: true},
	{method: http.MethodDelete, object: true, must: []string{"uploadId"}, write: true},
	{method: http.MethodDelete, object: true, must: []string{"tagging"}, may: versions, write: true},
	{method: http.MethodDelete, object: true, may: versions, write: true},
}

// presigned are the parameters of the guest's own signature. They are dropped, like x-id, with which SDKs name the
// operation.
var presigned = []string{
	"AWSAccessKeyId", "Expires", "Signature", "X-Amz-Algorithm", "X-Amz-Content-Sha256", "X-Amz-Credential", "X-Amz-Date",
	"X-Amz-Expires", "X-Amz-Security-Token", "X-Amz-Signature", "X-Amz-SignedHeaders", "x-id",
}

// parseQuery returns the parameters of a query, each once, without those of a signature.
func parseQuery(raw string) (url.Values, error) {
	q, err := url.ParseQuery(raw)
	if err != nil {
		return nil, errors.New("the query is not valid")
	}
	for name, values := range q {
		if len(values) > 1 {
			return nil, fmt.Errorf("the query has the parameter %.40q twice", name)
		}
		if slices.Contains(presigned, name) {
			delete(q, name)
		}
	}
	return q, nil
}

// operationOf returns the operation of a request.
func operationOf(method string, t target, q url.Values) (*operation, error) {
	for i := range operations {
		o := &operations[i]
		if o.method == method && o.object == (t.key != "") && o.fits(q) {
			return o, nil
		}
	}
	names := make([]string, 0, len(q))
	for name := range q {
		names = append(names, fmt.Sprintf("%.40q", name))
	}
	slices.Sort(names)
	of := "a bucket"
	if t.key != "" {
		of = "an object"
	}
	return nil, fmt.Errorf("%.10q of %s with the parameters [%s] is not signed: only reading, writing, listing and "+
		"deleting of objects is", method, of, strings.Join(names, " "))
}

func (o *operation) fits(q url.Values) bool {
	for _, name := range o.must {
		if !q.Has(name) {
			return false
		}
	}
	for name := range q {
		if !slices.Contains(o.must, name) && !slices.Contains(o.may, name) {
			return false
		}
	}
	return true
}

// check compares an operation with a grant.
func (g *Grant) check(o *operation, t target, q url.Values) error {
	switch {
	case o.object:
		return g.allows(t.bucket, t.key, o.write)
	case !o.list:
		return g.hasBucket(t.bucket, o.whole, o.write)
	}
	prefix := q.Get("prefix")
	if err := checkKey(prefix); err != nil { // storage in a file system may follow it upwards
		return fmt.Errorf("prefix: %w", err)
	}
	err := g.allows(t.bucket, prefix, false)
	if errors.Is(err, errNoKey) {
		return errors.New("the network policy grants access to a part of this bucket: list with its prefix")
	}
	return err
}
