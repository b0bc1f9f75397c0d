// Package s3sign signs requests of guests to S3-compatible storage. It reads the bucket and the object of a
// request, compares them with a grant, and makes the request to send, with an AWS Signature V4.
//
// All bytes come from a hostile guest. So a request is not changed and passed on, but made anew from its judged parts:
// the path, known query parameters and known headers. Only operations on objects and lists of them are signed. A
// request in doubt is refused: servers differ in how they read it.
//
// The trap: the administration of MinIO and Ceph has the same signature, on the same host. A wider table of operations
// can give a guest the keys of all buckets.
package s3sign
