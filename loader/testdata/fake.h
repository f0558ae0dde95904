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
typedef enum { CU_GRAPH_EXEC_UPDATE_ = -1 } CUgraphExecUpdateResult;
typedef enum { CU_MEMPOOL_ATTR_ = -1 } CUmemPool_attribute;
typedef enum { CU_FUNC_ATTRIBUTE_ = -1 } CUfunction_attribute;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUmemPoolHandle_st *CUmemoryPool;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef void (*CUhostFn)(void *userData);
typedef size_t (*CUoccupancyB2DSize)(int blockSize);
typedef uint64_t cuuint64_t;
// The two structs that cross by their address, as cuda.h lays them out.
typedef struct {
	struct { int type; int id; } location;
	int flags;
} CUmemAccessDesc;
typedef struct {
	size_t srcXInBytes, srcY;
	int srcMemoryType;
	const void *srcHost;
	CUdeviceptr srcDevice;
	void *srcArray;
	size_t srcPitch;
	size_t dstXInBytes, dstY;
	int dstMemoryType;
	void *dstHost;
	CUdeviceptr dstDevice;
	void *dstArray;
	size_t dstPitch;
	size_t WidthInBytes, Height;
} CUDA_MEMCPY2D;
typedef struct { char bytes[16]; } CUuuid;
typedef struct { char reserved[64]; } CUipcEventHandle;
typedef struct { char reserved[64]; } CUipcMemHandle;

uint64_t fake_seen[32];
unsigned char fake_bytes[128];

int fake_get_seen(uint64_t *out, int i) { *out = fake_seen[i]; return 0; }
int fake_get_byte(int i) { return fake_bytes[i]; }

#define IN(i, v) fake_seen[i] = (uint64_t)(v)
#define IN_POINTER(i, v) fake_seen[i] = (uint64_t)(uintptr_t)(v)
#define IN_BYTES(v) memcpy(fake_bytes, &(v), sizeof(v))
#define IN_TEXT(v) strcpy((char *)fake_bytes, v)
#define IN_ACCESS(v) fake_seen[16] = (uint64_t)(v)->location.type, fake_seen[17] = (uint64_t)(v)->location.id, fake_seen[18] = (uint64_t)(v)->flags
#define IN_2D(v) \
	fake_seen[16] = (v)->srcXInBytes, fake_seen[17] = (v)->srcY, fake_seen[18] = (uint64_t)(v)->srcMemoryType, \
	fake_seen[19] = (uint64_t)(uintptr_t)(v)->srcHost, fake_seen[20] = (v)->srcDevice, \
	fake_seen[21] = (uint64_t)(uintptr_t)(v)->srcArray, fake_seen[22] = (v)->srcPitch, \
	fake_seen[23] = (v)->dstXInBytes, fake_seen[24] = (v)->dstY, fake_seen[25] = (uint64_t)(v)->dstMemoryType, \
	fake_seen[26] = (uint64_t)(uintptr_t)(v)->dstHost, fake_seen[27] = (v)->dstDevice, \
	fake_seen[28] = (uint64_t)(uintptr_t)(v)->dstArray, fake_seen[29] = (v)->dstPitch, \
	fake_seen[30] = (v)->WidthInBytes, fake_seen[31] = (v)->Height
#define OUT(i, p, type) *(p) = (type)FAKE_OUT(i)
#define OUT_POINTER(i, p, type) *(p) = (type)(uintptr_t)FAKE_OUT(i)
#define OUT_FLOAT(p) *(p) = FAKE_NUMBER + 0.25f
#define OUT_TEXT(p, n, text) strncpy(p, text, n)
#define OUT_BYTES(p) for (size_t j = 0; j < sizeof *(p); j++) ((char *)(p))[j] = (char)(FAKE_NUMBER + j)

// What a call writes through its argument i, whatever the type's width.
#define FAKE_OUT(i) (0xf1e2d3c4b5a60000ull + FAKE_NUMBER * 16 + (i))
// What it answers: both signs occur.
#define FAKE_RESULT (FAKE_NUMBER % 2 ? -FAKE_NUMBER - 1000 : FAKE_NUMBER + 1000)
