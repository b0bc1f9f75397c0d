package s3sign

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// plainHeaders pass as they are. Other headers without X-Amz- are dropped: some name another method or path.
var plainHeaders = []string{
	"Accept", "Accept-Encoding", "Accept-Language", "Cache-Control", "Content-Disposition", "Content-Encoding",
	"Content-Language", "Content-Md5", "Content-Type", "Expires", "If-Match", "If-Modified-Since", "If-None-Match",
	"If-Range", "If-Unmodified-Since", "Range", "User-Agent",
}

// amzHeaders pass, after X-Amz-. Those ending in a dash are prefixes. Absent are access rights, locks, and sources and
// destinations under other names.
var amzHeaders = []string{
	"Acl", "Checksum-", "Copy-Source", "Copy-Source-If-", "Copy-Source-Range",
	"Copy-Source-Server-Side-Encryption-Customer-", "Decoded-Content-Length", "Expected-Bucket-Owner", "Meta-",
	"Max-Parts", "Metadata-Directive", "Mp-Object-Size", "Object-Attributes", "Optional-Object-Attributes",
	"Part-Number-Marker", "Request-Payer", "Sdk-Checksum-Algorithm", "Server-Side-Encryption",
	"Server-Side-Encryption-", "Source-Expected-Bucket-Owner", "Storage-Class", "Tagging", "Tagging-Directive",
	"Trailer",
}

// ownHeaders are those of the guest's signature, after X-Amz-. They are dropped.
var ownHeaders = []string{
	"Content-Sha256", "Date", "Security-Token", "Algorithm", "Credential", "Signature", "Signedheaders", "Expires",
	"User-Agent",
}

// acls do not open an object to others than the owners of the bucket.
var acls = []string{"private", "bucket-owner-read", "bucket-owner-full-control"}

// passed returns the headers to send, without those of the guest's signature.
func passed(from http.Header) (http.Header, error) {
	h := http.Header{}
	for name, values := range from {
		name = http.CanonicalHeaderKey(name)
		amz, isAmz := strings.CutPrefix(name, "X-Amz-")
		switch {
		case !isAmz && slices.Contains(plainHeaders, name):
			h[name] = append(h[name], values...)
		case !isAmz, slices.Contains(ownHeaders, amz):
		case len(values) != 1 || h[name] != nil:
			return nil, fmt.Errorf("the header %.64s is there twice", name)
		case !mayPass(amz):
			return nil, fmt.Errorf("requests with the header %.64s are not signed", name)
		case amz == "Acl" && !slices.Contains(acls, values[0]):
			return nil, fmt.Errorf("requests with the ACL %.40q are not signed: want one of %s", values[0],
				strings.Join(acls, ", "))
		default:
			h[name] = []string{values[0]}
		}
	}
	return h, nil
}

func mayPass(amz string) bool {
	lower := strings.ToLower(amz) // MinIO extracts archives by headers of this name, to any key
	if strings.Contains(lower, "snowball") || strings.HasPrefix(lower, "meta-minio") {
		return false
	}
	return slices.ContainsFunc(amzHeaders, func(known string) bool {
		return amz == known || strings.HasSuffix(known, "-") && strings.HasPrefix(amz, known)
	})
}
