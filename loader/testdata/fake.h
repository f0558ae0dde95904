// The head of the fake driver library: the types of cuda.h, and what the last
// call was given.
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef int CUresult;
typedef int CUdevice;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef unsigned long long CUdeviceptr;
typedef uint32_t cuuint32_t;
typedef enum { CU_DEVICE_ATTRIBUTE_ = -1 } CUdevice_attribute;
typedef enum { CU_STREAM_CAPTURE_MODE_ = -1 } CUstreamCaptureMode;
typedef enum { CU_STREAM_CAPTURE_STATUS_ = -1 } CUstreamCaptureStatus;
typedef struct { char bytes[16]; } CUuuid;
typedef struct { char reserved[64]; } CUipcEventHandle;
typedef struct { char reserved[64]; } CUipcMemHandle;

uint64_t fake_seen[8];
unsigned char fake_bytes[64];

int fake_get_seen(uint64_t *out, int i) { *out = fake_seen[i]; return 0; }
int fake_get_byte(int i) { return fake_bytes[i]; }

#define IN(i, v) fake_seen[i] = (uint64_t)(v)
#define IN_POINTER(i, v) fake_seen[i] = (uint64_t)(uintptr_t)(v)
#define IN_BYTES(v) memcpy(fake_bytes, &(v), sizeof(v))
#define OUT(i, p, type) *(p) = (type)FAKE_OUT(i)
#define OUT_POINTER(i, p, type) *(p) = (type)(uintptr_t)FAKE_OUT(i)
#define OUT_FLOAT(p) *(p) = FAKE_NUMBER + 0.25f
#define OUT_TEXT(p, n, text) strncpy(p, text, n)
#define OUT_BYTES(p) for (size_t j = 0; j < sizeof *(p); j++) ((char *)(p))[j] = (char)(FAKE_NUMBER + j)

// What a call writes through its argument i, whatever the type's width.
#define FAKE_OUT(i) (0xf1e2d3c4b5a60000ull + FAKE_NUMBER * 16 + (i))
// What it answers: both signs occur.
#define FAKE_RESULT (FAKE_NUMBER % 2 ? -FAKE_NUMBER - 1000 : FAKE_NUMBER + 1000)
