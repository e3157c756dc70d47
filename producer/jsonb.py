def json_text(data: bytes) -> str:
    raise NotImplementedError
