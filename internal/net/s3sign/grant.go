package s3sign

import (
	"errors"
	"strings"
)

// Grant is what the guests of a policy may do at one host.
type Grant struct {
	// Host is the name to which requests are sent. If HostBucket is set, it begins with that bucket.
	Host string
	// HostBucket is the bucket in Host, or empty if paths begin with the bucket.
	HostBucket string
	// Region is in the scope of signatures.
	Region string
	// Keys sign the requests.
	Keys Keys
	// Buckets are the granted parts of buckets.
	Buckets []Bucket
	// Missing is why all requests must be refused, or empty.
	Missing string
}

// Keys are the credentials of an account.
type Keys struct {
	// AccessKeyID is in the requests. Hosts show it in their errors.
	AccessKeyID string
	// SecretAccessKey is in no request.
	SecretAccessKey string
	// SessionToken is in the requests. It is empty for permanent keys.
	SessionToken string
}

// Bucket is a granted part of a bucket.
type Bucket struct {
	// Name is the bucket's name.
	Name string
	// Prefix begins the keys of the granted objects, and ends in a slash. If empty, all objects are granted.
	Prefix string
	// ReadOnly refuses all operations that change objects.
	ReadOnly bool
}

var (
	errNoBucket = errors.New("the network policy grants no access to this bucket")
	errNoKey    = errors.New("the network policy grants no access to this object")
	errReadOnly = errors.New("the network policy grants only reading here")
)

// allows returns an error unless some granted part of the bucket has the key. For a list, key is its prefix.
func (g *Grant) allows(bucket, key string, write bool) error {
	err := errNoBucket
	for _, b := range g.Buckets {
		switch {
		case b.Name != bucket:
		case !strings.HasPrefix(key, b.Prefix):
			if errors.Is(err, errNoBucket) {
				err = errNoKey
			}
		case write && b.ReadOnly:
			err = errReadOnly
		default:
			return nil
		}
	}
	return err
}

// hasBucket returns an error unless some part of a bucket is granted, or all of it if whole is set.
func (g *Grant) hasBucket(bucket string, whole, write bool) error {
	if whole {
		return g.allows(bucket, "", write)
	}
	for _, b := range g.Buckets {
		if b.Name == bucket {
			return nil
		}
	}
	return errNoBucket
}
