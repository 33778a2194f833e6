package remoting

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/des"
	"crypto/pbkdf2"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"hash"
)

// Keys with a password: PKCS#8 under PBES2 (RFC 8018), which is what openssl pkcs8 writes.

const mostIterations = 10_000_000

type encryptedKey struct {
	Algorithm pkix.AlgorithmIdentifier
	Data      []byte
}

type pbes2Params struct {
	KDF, Cipher pkix.AlgorithmIdentifier
}

type pbkdf2Params struct {
	Salt       []byte
	Iterations int
	KeyLength  int                      `asn1:"optional"`
	PRF        pkix.AlgorithmIdentifier `asn1:"optional"`
}

var (
	oidPBES2  = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 5, 13}
	oidPBKDF2 = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 5, 12}
)

// ciphers by OID; all are CBC.
var ciphers = map[string]struct {
	keyLen int
	block  func([]byte) (cipher.Block, error)
}{
	"2.16.840.1.101.3.4.1.2":  {16, aes.NewCipher},
	"2.16.840.1.101.3.4.1.22": {24, aes.NewCipher},
	"2.16.840.1.101.3.4.1.42": {32, aes.NewCipher},
	"1.2.840.113549.3.7":      {24, des.NewTripleDESCipher},
}

// prfs by OID; "" is the default of the format.
var prfs = map[string]func() hash.Hash{
	"":                    sha1.New,
	"1.2.840.113549.2.7":  sha1.New,
	"1.2.840.113549.2.9":  sha256.New,
	"1.2.840.113549.2.10": sha512.New384,
	"1.2.840.113549.2.11": sha512.New,
}

// decryptKey gives PEM text with a plain key. Text without an encrypted key is returned as it is.
func decryptKey(text []byte, password string) ([]byte, error) {
	for rest := text; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return text, nil
		}
		if block.Type != "ENCRYPTED PRIVATE KEY" {
			continue
		}
		der, err := decryptPKCS8(block.Bytes, password)
		if err != nil {
			return nil, err
		}
		return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
	}
}

func decryptPKCS8(der []byte, password string) ([]byte, error) {
	var enc encryptedKey
	if _, err := asn1.Unmarshal(der, &enc); err != nil {
		return nil, fmt.Errorf("parse encrypted key: %w", err)
	}
	if !enc.Algorithm.Algorithm.Equal(oidPBES2) {
		return nil, fmt.Errorf("key encryption %v is not supported; convert it with openssl pkcs8 -topk8 -v2 aes-256-cbc", enc.Algorithm.Algorithm)
	}
	var params pbes2Params
	if _, err := asn1.Unmarshal(enc.Algorithm.Parameters.FullBytes, &params); err != nil {
		return nil, fmt.Errorf("parse key encryption: %w", err)
	}
	if !params.KDF.Algorithm.Equal(oidPBKDF2) {
		return nil, fmt.Errorf("key derivation %v is not supported; convert the key with openssl pkcs8 -topk8 -v2 aes-256-cbc", params.KDF.Algorithm)
	}
	var kdf pbkdf2Params
	if _, err := asn1.Unmarshal(params.KDF.Parameters.FullBytes, &kdf); err != nil {
		return nil, fmt.Errorf("parse key derivation: %w", err)
	}
	prf, ok := prfs[kdf.PRF.Algorithm.String()]
	if !ok {
		return nil, fmt.Errorf("hash %v of the key derivation is not supported", kdf.PRF.Algorithm)
	}
	c, ok := ciphers[params.Cipher.Algorithm.String()]
	if !ok {
		return nil, fmt.Errorf("cipher %v of the key is not supported", params.Cipher.Algorithm)
	}
	var iv []byte
	if _, err := asn1.Unmarshal(params.Cipher.Parameters.FullBytes, &iv); err != nil {
		return nil, fmt.Errorf("parse the key's cipher: %w", err)
	}
	if kdf.Iterations < 1 || kdf.Iterations > mostIterations {
		return nil, fmt.Errorf("key derivation with %d iterations", kdf.Iterations)
	}
	key, err := pbkdf2.Key(prf, password, kdf.Salt, kdf.Iterations, c.keyLen)
	if err != nil {
		return nil, fmt.Errorf("derive key: %w", err)
	}
	block, err := c.block(key)
	if err != nil {
		return nil, err
	}
	return decryptCBC(block, iv, enc.Data)
}

var errPassword = errors.New("wrong password or damaged key")

func decryptCBC(block cipher.Block, iv, data []byte) ([]byte, error) {
	size := block.BlockSize()
	if len(iv) != size || len(data) == 0 || len(data)%size != 0 {
		return nil, errPassword
	}
	out := make([]byte, len(data))
	cipher.NewCBCDecrypter(block, iv).CryptBlocks(out, data)
	pad := int(out[len(out)-1])
	if pad == 0 || pad > size {
		return nil, errPassword
	}
	for _, b := range out[len(out)-pad:] {
		if int(b) != pad {
			return nil, errPassword
		}
	}
	return out[:len(out)-pad], nil
}
